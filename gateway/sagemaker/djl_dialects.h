#pragma once
#include "gateway/prepare/dialect.h"

/* Each of these dialects belongs to a form that the gateway can be started with. The dialect
 * reads bodies and writes the answers to `inputs`. */
extern const struct dialect dialect_djl, dialect_djl_async, dialect_djl_tgi, dialect_djl_static;
