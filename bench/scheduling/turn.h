#pragma once
/* Runs the whole head core under the trace. */
#include "bench/scheduling/rig.h"
#include "bench/scheduling/trace.h"

/* Returns a rig of the whole head core with one rank and one gateway. Their frames stay in
 * memory. step_log: path of a step log, NULL = none. */
struct rig rig_turn(struct trace *t, const char *step_log, bench_mallocs *n_mallocs);
