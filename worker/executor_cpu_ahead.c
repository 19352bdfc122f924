/* Stages in front of the last one run ahead of it: what a step drew is taken from the last stage
 * when a plan touches one of its sequences, not at the step's end. Until then the next plan's rows
 * that have nothing to do with them pass through.
 *
 * Nobody waits in a circle: hidden states go forward and ids back, and a stage that waits to get
 * its hidden states rid does not take ids meanwhile. So it begins a step only when all ids that may
 * come until it has given its last row on are few enough to lie in a link by themselves. */
#include <string.h>

#include "worker/executor_cpu_internal.h"

/* A ring of shared memory and the buffers of any socket have room for it. */
enum { AHEAD_MAX_BYTES = 16 << 10 };

void cpu_ahead_init(struct executor_cpu *x)
{
    for (uint32_t i = 0; i < CPU_STEPS_AHEAD; i++)
        arena_init(&x->ahead[i].arena, 0);
}

void cpu_ahead_fini(struct executor_cpu *x)
{
    for (uint32_t i = 0; i < CPU_STEPS_AHEAD; i++)
        arena_fini(&x->ahead[i].arena);
}

void cpu_ahead_drop(struct executor_cpu *x)
{
    x->n_ahead = 0;
    x->ahead_bytes = 0;
}

static size_t bytes_of(const struct drawn *d)
{
    return ((size_t)d->n_places + d->n_items) * sizeof *d->ids;
}

enum status cpu_settle(struct executor_cpu *x, struct error *err)
{
    while (x->n_ahead > 0) {
        struct step_ahead *a = &x->ahead[x->i_ahead];
        TRY(cpu_append_drawn(x, a->runs, &a->drawn, err));
        for (uint32_t i = 0; i < a->runs.n; i++)
            a->runs.ptr[i].q->awaits = false;
        x->ahead_bytes -= bytes_of(&a->drawn);
        x->i_ahead = (x->i_ahead + 1) % CPU_STEPS_AHEAD;
        x->n_ahead--;
    }
    return STATUS_OK;
}

static bool awaits(const struct executor_cpu *x, uint32_t slot)
{
    const struct sequence *q = sequences_find(x->sequences, slot);
    return q && q->awaits;
}

/* A draft model's guesses come the same way as the ids, behind them. */
static bool touches(const struct executor_cpu *x, const struct msg_plan *p)
{
    bool any = x->draft_model || p->full || p->digest != 0;
    for (uint32_t i = 0; i < p->finished.n && !any; i++)
        any = awaits(x, p->finished.ptr[i]);
    for (uint32_t i = 0; i < p->n_runs && !any; i++)
        any = awaits(x, p->runs[i].slot);
    return any;
}

enum status cpu_settle_for(struct executor_cpu *x, const struct msg_plan *p, struct error *err)
{
    return x->n_ahead > 0 && touches(x, p) ? cpu_settle(x, err) : STATUS_OK;
}

/* A copy of the runs that draw, and room for what they do, in memory of its own. */
static enum status keep(struct step_ahead *a, struct sequence_runs runs, uint32_t n_items,
                        struct error *err)
{
    arena_reset(&a->arena);
    a->runs = (struct sequence_runs){arena_try_array(&a->arena, n_items, sizeof *runs.ptr), 0};
    if (!a->runs.ptr)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %u runs", n_items);
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].sample)
            a->runs.ptr[a->runs.n++] = runs.ptr[i];
    return cpu_drawn_init(&a->drawn, a->runs, &a->arena, err);
}

enum status cpu_run_ahead(struct executor_cpu *x, struct sequence_runs runs, struct drawn *drawn,
                          struct error *err)
{
    size_t n_bytes = bytes_of(drawn);
    if (drawn->n_items == 0)
        return STATUS_OK;
    if (x->n_ahead == CPU_STEPS_AHEAD || x->ahead_bytes + n_bytes > AHEAD_MAX_BYTES) {
        TRY(cpu_settle(x, err));
        return cpu_append_drawn(x, runs, drawn, err);
    }
    struct step_ahead *a = &x->ahead[(x->i_ahead + x->n_ahead) % CPU_STEPS_AHEAD];
    TRY(keep(a, runs, drawn->n_items, err));
    for (uint32_t i = 0; i < a->runs.n; i++)
        a->runs.ptr[i].q->awaits = true;
    x->ahead_bytes += n_bytes;
    x->n_ahead++;
    return STATUS_OK;
}
