#pragma once
/* Ctrl-C and SIGTERM: the first ends what runs in good order, a second one at once. */
#include <stdbool.h>

void bench_catch_signals(void); /* from now on; again after somebody else had them */
bool bench_is_interrupted(void);
