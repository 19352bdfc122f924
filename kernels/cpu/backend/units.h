#pragma once
/* How operators are cut into tasks for the pool's threads, and the memory that these work in. */
#include "kernels/cpu/backend/state.h"

/* The unit of cost is about 0.3 ns: an addition of two floats from the cache on one thread. Waking
 * the threads takes some microseconds, so what is cheaper than this runs in the caller. */
enum { COST_PARALLEL = 32768, TASKS_PER_THREAD = 8 };

/* Memory of one size for good after the first step: they grow, and keep nothing. */
void cpu_scratch_grow(struct scratch *s, uint64_t n_floats);
void cpu_scratch_reserve(struct cpu_device *d, uint64_t n_floats); /* of each thread */

/* One unit of an operator: a row, a piece of one, a panel. p is the operator's parameters. */
typedef void (*unit_fn)(struct cpu_device *d, const void *p, uint32_t i, uint32_t i_thread);
/* n units of about the same cost, on the threads when that is worth it. */
void cpu_run_units(struct cpu_device *d, uint32_t n, uint64_t cost, unit_fn fn, const void *p);
