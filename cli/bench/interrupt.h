#pragma once
/* SIGINT (Ctrl-C) and SIGTERM: the first one ends the benchmark in good order, a second one ends
 * the process at once. */
#include <stdbool.h>

/* installs the handlers; called again after other code replaced them */
void bench_catch_signals(void);
bool bench_is_interrupted(void);
