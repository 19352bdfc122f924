#pragma once
/* The scheduler alone under the trace. */
#include "bench/scheduling/rig.h"
#include "bench/scheduling/trace.h"

/* scheduler.h and the codec, called as dispatch.c and gateways.c call them. */
struct rig rig_alone(struct trace *t, bench_mallocs *n_mallocs);
