#pragma once
/* Runs the scheduler alone under the trace. */
#include "bench/scheduling/rig.h"
#include "bench/scheduling/trace.h"

/* Returns a rig that calls scheduler.h and the codec as dispatch.c and gateways.c do. */
struct rig rig_alone(struct trace *t, bench_mallocs *n_mallocs);
