#pragma once
/* Handles SIGINT (Ctrl-C) and SIGTERM. The first signal ends the benchmark in good order, and a
 * second signal ends the process at once. */
#include <stdbool.h>

/* Installs the handlers. It is called again after other code has replaced them. */
void bench_catch_signals(void);
bool bench_is_interrupted(void);
