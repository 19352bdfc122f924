#pragma once
/* Handles SIGINT (Ctrl-C) and SIGTERM. The first signal ends the benchmark with a report, and a
 * second signal ends the process at once. */
#include <stdbool.h>

/* Installs the handlers. The function is called again after other code has replaced the
 * handlers. */
void bench_catch_signals(void);
bool bench_is_interrupted(void);
