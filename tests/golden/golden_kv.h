#pragma once
/* Parses the option --kv of the golden programs. */
#include "common/base/dtype.h"

/* Returns the dtype for f32, f16, bf16, fp8 or int8; any other name ends the program. */
enum dtype golden_kv_dtype(const char *name);
