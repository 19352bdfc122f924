#pragma once
#include "gateway/prepare/dialect.h"

/* The dialect of the form that the gateway was started with. It reads bodies and writes the
 * answers to `inputs`. */
extern const struct dialect dialect_djl, dialect_djl_async, dialect_djl_tgi, dialect_djl_static;
