#pragma once
/* --kv of the golden programs. */
#include "common/base/dtype.h"

/* f32, f16, bf16, fp8, int8; another name ends the program. */
enum dtype golden_kv_dtype(const char *name);
