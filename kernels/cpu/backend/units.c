#include "kernels/cpu/backend/units.h"

#include "common/base/mem.h"

enum { COST_TASK = 8192 /* least cost of a task, in units of cost */, CACHE_LINE = 64 };

/* ---- memory ---- */

void cpu_scratch_grow(struct scratch *s, uint64_t n_floats)
{
    if (n_floats <= s->n_floats)
        return;
    mem_free(s->block);
    s->block = mem_array(n_floats * sizeof(float) + CACHE_LINE, 1);
    s->floats = (float *)(((uintptr_t)s->block + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    s->n_floats = n_floats;
}

void cpu_scratch_reserve(struct cpu_device *d, uint64_t n_floats)
{
    for (uint32_t i = 0; i < pool_n_threads(d->pool); i++)
        cpu_scratch_grow(&d->scratch[i], n_floats);
}

/* ---- cutting into tasks ---- */

struct units {
    struct cpu_device *d;
    const void *p;
    unit_fn fn;
    uint32_t n, per_task;
};

static void units_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct units *u = ctx;
    uint32_t i = i_task * u->per_task, left = u->n - i;
    uint32_t end = i + (left < u->per_task ? left : u->per_task);
    for (; i < end; i++)
        u->fn(u->d, u->p, i, i_thread);
}

void cpu_run_units(struct cpu_device *d, uint32_t n, uint64_t cost, unit_fn fn, const void *p)
{
    uint64_t total = n * cost, n_tasks = (uint64_t)pool_n_threads(d->pool) * TASKS_PER_THREAD;
    struct units u = {d, p, fn, n, n};
    if (n > 1 && total >= COST_PARALLEL) {
        if (n_tasks > total / COST_TASK)
            n_tasks = total / COST_TASK;
        u.per_task = div_up(n, n_tasks);
    }
    pool_run(d->pool, n > 0 ? div_up(n, u.per_task) : 0, units_task, &u);
}
