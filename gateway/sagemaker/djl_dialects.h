#pragma once
#include "gateway/prepare/dialect.h"

/* The form that the gateway was started with reads the body, and answers `inputs`. */
extern const struct dialect dialect_djl, dialect_djl_async, dialect_djl_tgi, dialect_djl_static;
