#pragma once
/* Declares how operators are cut into tasks for the pool's threads, and the scratch memory of
 * these tasks. */
#include "kernels/cpu/backend/state.h"

/* Costs are counted in units of about 0.3 ns: one addition of two floats from the cache on one
 * thread.
 * COST_PARALLEL is the cost from which work is divided among threads, because waking them takes
 * some microseconds.
 * TASKS_PER_THREAD is the number of tasks for each thread into which such work is cut. */
enum { COST_PARALLEL = 32768, TASKS_PER_THREAD = 8 };

/* Makes the scratch `s` at least n_floats large. The content is lost when the scratch grows. A
 * scratch never shrinks, so its size is constant after the first step. */
void cpu_scratch_grow(struct scratch *s, uint64_t n_floats);
/* makes each thread's scratch at least n_floats large */
void cpu_scratch_reserve(struct cpu_device *d, uint64_t n_floats);

/* Computes one unit of an operator: a row, a piece of a row or a panel. p is the operator's
 * parameters. */
typedef void (*unit_fn)(struct cpu_device *d, const void *p, uint32_t i, uint32_t i_thread);
/* Runs n units of about equal cost. The function uses the pool's threads if that saves time. */
void cpu_run_units(struct cpu_device *d, uint32_t n, uint64_t cost, unit_fn fn, const void *p);
