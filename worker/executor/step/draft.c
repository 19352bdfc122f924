/* Makes draft tokens for a device with a model. N-grams depend only on the ids, so every rank
 * finds the same draft tokens itself. A draft model runs on the sampling rank, which sends its
 * draft tokens to the others. All draft tokens are in the sequences' ids before the target's
 * passes begin. A third method (extra heads of the target that predict later tokens) would save
 * a row's hidden state when the row runs, and make draft tokens here. */
#include "worker/executor/step/draft.h"

#include <string.h>

#include "worker/draft/draft.h"
#include "worker/draft/model.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/pipeline_ids.h"

/* Sends the draft tokens from the sampling rank to all ranks. All ranks have planned the same
 * number, so nothing is sent when the number is 0. */
static enum status tell_ranks(struct executor_model *x, struct sequence_runs runs,
                              struct arena *arena, struct error *err)
{
    uint32_t n = 0, vocab_size = x->info.limits.vocab_size;
    bool tells = executor_is_sampling_rank(x);
    for (uint32_t i = 0; i < runs.n; i++)
        n += runs.ptr[i].n_drafted;
    if (n == 0)
        return STATUS_OK;
    uint32_t *all = arena_try_array(arena, n, sizeof *all), *at = all;
    if (!all)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u draft tokens. Free memory on this machine", n);
    for (uint32_t i = 0; tells && i < runs.n; at += runs.ptr[i].n_drafted, i++)
        memcpy(at, runs.ptr[i].q->ids + runs.ptr[i].q->n_ids, runs.ptr[i].n_drafted * sizeof *at);
    TRY(executor_tell(x, all, n * sizeof *all, err));
    for (uint32_t i = 0; i < n; i++)
        if (all[i] >= vocab_size)
            return error_set(err, STATUS_INVALID,
                             "rank %u drafted token %u, which is outside the vocabulary of %u "
                             "tokens. Report this bug",
                             x->ranks.comms.sampling_rank, all[i], vocab_size);
    at = all;
    for (uint32_t i = 0; !tells && i < runs.n; at += runs.ptr[i].n_drafted, i++)
        memcpy(runs.ptr[i].q->ids + runs.ptr[i].q->n_ids, at, runs.ptr[i].n_drafted * sizeof *at);
    return STATUS_OK;
}

enum status executor_propose(struct executor_model *x, const struct msg_plan *p,
                             struct sequence_runs runs, struct arena *arena, struct error *err)
{
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].n_draft > 0)
            TRY(executor_resolve_ids(x, err)); /* draft tokens depend on the pending ids */
    if (!x->draft_model)
        return draft_runs(&x->speculation, runs, err);
    draft_model_plan(x->draft_model, runs, x->speculation.n_tokens);
    if (executor_is_sampling_rank(x)) {
        draft_model_copy(x->draft_model, p->copies, p->n_copies);
        const uint32_t *last = x->device_sampler ? x->device_sampler->last : NULL;
        enum status s = draft_model_run(x->draft_model, runs, last, err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "draft model");
    }
    return x->ranks.in->tell ? tell_ranks(x, runs, arena, err) : STATUS_OK;
}
