#include "worker/executor/step/append.h"

#include "worker/executor/ranks.h"

static uint32_t n_places(const struct sequence_run *r)
{
    return r->n_tokens > 0 ? r->n_drafted + 1 : 0;
}

enum status sampled_init(struct sampled *d, struct sequence_runs runs, struct arena *arena,
                         struct error *err)
{
    bool logprobs = false, masks = false;
    *d = (struct sampled){0};
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        if (!r->sample)
            continue;
        d->n_items++;
        d->n_places += n_places(r);
        d->drafted = d->drafted || r->n_drafted > 0;
        logprobs = logprobs || r->q->sampling.n_logprobs >= 0;
        masks = masks || r->q->sampling.grammar_kind != GRAMMAR_NONE;
    }
    uint32_t n = d->n_places + d->n_items;
    if (n == 0)
        return STATUS_OK;
    d->ids = arena_try_array(arena, n, sizeof *d->ids);
    d->gaps = arena_try_array(arena, n, sizeof *d->gaps);
    d->items = arena_try_array(arena, d->n_items, sizeof *d->items);
    if (logprobs)
        d->logprobs = arena_try_array(arena, n, sizeof *d->logprobs);
    if (masks) {
        d->mask_units = arena_try_array(arena, n, sizeof *d->mask_units);
        d->matcher_kib = arena_try_array(arena, n, sizeof *d->matcher_kib);
    }
    if (d->ids && d->gaps && d->items && (!logprobs || d->logprobs) &&
        (!masks || (d->mask_units && d->matcher_kib)))
        return STATUS_OK;
    return error_set(err, STATUS_NO_MEMORY,
                     "not enough memory for %u results. Free memory on this machine", d->n_items);
}

/* Returns the number of places that count: one for each draft token before the first that
 * differs from the sampled id, and one more. */
static uint32_t n_right(const struct sequence_run *r, const uint32_t *ids)
{
    const uint32_t *drafts = r->q->ids + r->q->n_ids;
    uint32_t n = 0;
    while (n < r->n_drafted && ids[n] == drafts[n])
        n++;
    return n_places(r) > 0 ? n + 1 : 0;
}

static void count_right(struct sampled *d, struct sequence_runs runs)
{
    uint32_t *ids = d->ids, *counts = d->ids + d->n_places;
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        if (!r->sample)
            continue;
        *counts++ = n_right(r, ids);
        ids += n_places(r);
    }
}

/* Checks the ids from the sampling rank. Every rank has the same draft tokens, so a draft token
 * that the sampling rank accepted must be here too. */
static enum status check_taken(const struct executor_model *x, const struct sequence_run *r,
                               const uint32_t *ids, uint32_t n, struct error *err)
{
    uint32_t vocab_size = x->info.limits.vocab_size, slot = r->q->slot;
    if (n > n_places(r) || (n == 0 && n_places(r) > 0) || n > n_right(r, ids))
        return error_set(err, STATUS_INVALID,
                         "rank %u sampled %u tokens for slot %u after %u draft tokens, but by "
                         "this rank's draft tokens it can be at most %u. Report this bug",
                         x->ranks.comms.sampling_rank, n, slot, r->n_drafted, n_right(r, ids));
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return error_set(err, STATUS_INVALID,
                             "rank %u sampled token %u for slot %u, which is outside the "
                             "vocabulary of %u tokens. Report this bug",
                             x->ranks.comms.sampling_rank, ids[i], slot, vocab_size);
    return STATUS_OK;
}

/* Appends n ids to the sequence. The sampling rank appends its own ids here too, so that all
 * ranks run the same code. */
static enum status append(struct executor_model *x, struct sequence_run *r, const uint32_t *ids,
                          uint32_t n, struct error *err)
{
    TRY(check_taken(x, r, ids, n, err));
    for (uint32_t i = 0; i < n; i++)
        if (!sequence_push(r->q, ids[i], x->info.limits.max_model_len))
            return error_set(
                err, STATUS_NO_MEMORY,
                "not enough memory for the token of slot %u. Free memory on this machine",
                r->q->slot);
    r->q->draft_lacks = r->n_drafted > 0 && n > r->n_drafted;
    return STATUS_OK;
}

/* Sums the mask costs of all places of a run, the rejected ones included. */
static uint32_t units_of(const struct sampled *d, const struct sequence_run *r, uint32_t at)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; d->mask_units && i < n_places(r); i++)
        sum += d->mask_units[at + i];
    return sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
}

static struct result_item item_of(const struct sampled *d, const struct sequence_run *r,
                                  uint32_t at, uint32_t n)
{
    bool logprobs = r->q->sampling.n_logprobs >= 0 && n > 0;
    bool matcher = d->matcher_kib && n_places(r) > 0;
    return (struct result_item){.slot = r->q->slot,
                                .ids = {d->ids + at, n},
                                .logprobs = logprobs ? d->logprobs + at : NULL,
                                .n_logprobs = logprobs ? n : 0,
                                .gaps = {d->gaps + at, n},
                                .vector = r->q->vector,
                                .mask_units = units_of(d, r, at),
                                .matcher_kib = matcher ? d->matcher_kib[at] : 0};
}

void executor_put_items(struct sampled *d, struct sequence_runs runs)
{
    for (uint32_t i = 0, n = 0, at = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        if (!r->sample)
            continue;
        d->items[n++] = item_of(d, r, at, n_places(r));
        at += n_places(r);
    }
}

enum status executor_append_id(struct executor_model *x, struct sequence *q, uint32_t id,
                               struct error *err)
{
    if (id >= x->info.limits.vocab_size)
        return error_set(err, STATUS_INVALID,
                         "rank %u sampled token %u for slot %u, which is outside the vocabulary of "
                         "%u tokens. Report this bug",
                         x->ranks.comms.sampling_rank, id, q->slot, x->info.limits.vocab_size);
    if (!sequence_push(q, id, x->info.limits.max_model_len))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the token of slot %u. Free memory on this machine",
                         q->slot);
    q->draft_lacks = 0;
    return STATUS_OK;
}

/* Sends the sampled ids to all ranks and appends them. Without draft tokens each run has one id,
 * or none when it has ended, so the counts are not sent. */
enum status executor_append_sampled(struct executor_model *x, struct sequence_runs runs,
                                    struct sampled *d, struct error *err)
{
    if (d->n_items == 0)
        return STATUS_OK;
    if (executor_is_sampling_rank(x) || !d->drafted)
        count_right(d, runs);
    uint32_t n_sent = d->n_places + (d->drafted ? d->n_items : 0);
    TRY(executor_tell(x, d->ids, n_sent * sizeof *d->ids, err));
    for (uint32_t i = 0, n = 0, at = 0; i < runs.n; i++) {
        struct sequence_run *r = &runs.ptr[i];
        if (!r->sample)
            continue;
        uint32_t n_taken = d->ids[d->n_places + n], places = n_places(r);
        TRY(append(x, r, d->ids + at, n_taken, err));
        d->items[n++] = item_of(d, r, at, n_taken);
        at += places;
    }
    return STATUS_OK;
}
