#pragma once
/* Compares the head's step log with the received answers. */
#include "bench/gateway_load/load.h"

/* Prints "added_us": percentiles of the time from the head's receipt of a token to the client's.
 * Ends the program when an answer is not in the log, or when its tokens differ. */
void load_trace_print(const struct load *l);
