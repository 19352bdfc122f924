/* Moves sampled ids from the last stage to the earlier stages. Without draft tokens each run
 * samples one id, so all ranks know how many ids each pass yields. An earlier stage appends an
 * empty place for the id and continues. It waits only when that id becomes a row. While the last
 * stage computes one half of a step's rows, the first stage computes the other half, and then
 * the first half of the next step.
 *
 * Deadlocks cannot occur. Hidden states are sent forward and ids are sent back, and a stage that
 * waits to send hidden states reads no ids meanwhile. It therefore begins a pass only when all
 * ids that may arrive until its end fit into the buffers of a link. */
#include "worker/executor/step/pipeline_ids.h"

#include <assert.h>

#include "worker/executor/ranks.h"
#include "worker/executor/step/append.h"

/* A ring of shared memory and the buffers of a socket hold at least 16 KiB and the headers. */
_Static_assert(EXECUTOR_AHEAD_IDS * sizeof(uint32_t) + EXECUTOR_AHEAD_PASSES * 16ul <= 20 << 10,
               "few enough");

void executor_ahead_drop(struct executor_model *x)
{
    x->ahead.n_ids = x->ahead.n_passes = 0;
}

/* Receives the ids of the oldest pass. */
static enum status resolve_pass(struct executor_model *x, struct error *err)
{
    struct executor_ahead *a = &x->ahead;
    uint32_t ids[EXECUTOR_AHEAD_IDS], n = a->n_of[a->i_pass];
    assert(a->n_passes > 0 && n <= a->n_ids); /* a pending sequence is always in `waiting` */
    TRY(executor_tell(x, ids, n * sizeof *ids, err));
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *q = a->waiting[(a->i_id + i) % EXECUTOR_AHEAD_IDS];
        if (ids[i] >= x->info.limits.vocab_size)
            return error_set(err, STATUS_INVALID,
                             "rank %u sampled token %u for slot %u, which is outside the "
                             "vocabulary of %u tokens. Report this bug",
                             x->ranks.comms.sampling_rank, ids[i], q->slot,
                             x->info.limits.vocab_size);
        q->ids[q->n_ids - 1] = ids[i];
        q->is_pending = false;
    }
    a->i_id = (a->i_id + n) % EXECUTOR_AHEAD_IDS;
    a->n_ids -= n;
    a->i_pass = (a->i_pass + 1) % EXECUTOR_AHEAD_PASSES;
    a->n_passes--;
    return STATUS_OK;
}

enum status executor_resolve_ids(struct executor_model *x, struct error *err)
{
    while (x->ahead.n_passes > 0)
        TRY(resolve_pass(x, err));
    return STATUS_OK;
}

enum status executor_resolve_ids_for(struct executor_model *x, const struct msg_plan *p,
                                     struct error *err)
{
    bool any = p->full;
    for (uint32_t i = 0; i < p->finished.n && !any; i++) {
        const struct sequence *q = sequences_find(x->sequences, p->finished.ptr[i]);
        any = q && q->is_pending;
    }
    return any ? executor_resolve_ids(x, err) : STATUS_OK;
}

enum status executor_find_pending(struct executor_model *x, struct error *err)
{
    const struct batch *b = &x->batch;
    for (uint32_t i = 0; i < b->n_pending; i++) {
        const struct sequence *q = b->pending[i].q;
        while (q->is_pending)
            TRY(resolve_pass(x, err));
        b->ids[b->pending[i].row] = q->ids[q->n_ids - 1];
    }
    while (x->ahead.n_passes == EXECUTOR_AHEAD_PASSES ||
           x->ahead.n_ids + b->n_samples > EXECUTOR_AHEAD_IDS)
        TRY(resolve_pass(x, err));
    return STATUS_OK;
}

/* Sends the sampled ids of a pass to all ranks. The ranks of this stage append them here. */
static enum status tell_pass(struct executor_model *x, const struct sampled *d, struct error *err)
{
    const struct batch *b = &x->batch;
    uint32_t *ids = d->ids + (d->n_done - b->n_samples);
    TRY(executor_tell(x, ids, b->n_samples * sizeof *ids, err));
    for (uint32_t i = 0; i < b->n_samples; i++)
        TRY(executor_append_id(x, b->samples[i].run->q, ids[i], err));
    return STATUS_OK;
}

enum status executor_end_pass(struct executor_model *x, struct sampled *sampled, struct error *err)
{
    const struct batch *b = &x->batch;
    struct executor_ahead *a = &x->ahead;
    if (b->n_samples == 0)
        return STATUS_OK;
    if (program_is_last(x->engine->program))
        return tell_pass(x, sampled, err);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        struct sequence *q = b->samples[i].run->q;
        TRY(executor_append_id(x, q, 0, err));
        q->is_pending = true;
        a->waiting[(a->i_id + a->n_ids++) % EXECUTOR_AHEAD_IDS] = q;
    }
    a->n_of[(a->i_pass + a->n_passes++) % EXECUTOR_AHEAD_PASSES] = b->n_samples;
    return STATUS_OK;
}
