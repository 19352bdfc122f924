#pragma once
/* Ends a bench that cannot continue. */
#include "common/base/str.h"

/* Prints "PROGRAM: …" on stderr and ends with exit status 1. */
_Noreturn void bench_die(const char *fmt, ...) PRINTF_LIKE(1, 2);
