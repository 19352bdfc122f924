#pragma once
/* The whole head core under the trace. */
#include "bench/scheduling/rig.h"
#include "bench/scheduling/trace.h"

/* The whole head core with one rank and one gateway behind it, whose frames stay in memory.
 * step_log: the file of one, NULL: none. */
struct rig rig_turn(struct trace *t, const char *step_log, bench_mallocs *n_mallocs);
