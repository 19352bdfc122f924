#pragma once
/* The head's step log beside what was received. */
#include "bench/gateway_load/load.h"

/* Prints "added_us": percentiles of receipt here less receipt at the head, and
 * ends the program when an answer is not in the log or the log's has other tokens. */
void load_trace_print(const struct load *l);
