#pragma once
/* The end of a bench that cannot go on. */
#include "common/base/str.h"

/* "PROGRAM: …" on stderr, and exit status 1. */
_Noreturn void bench_die(const char *fmt, ...) PRINTF_LIKE(1, 2);
