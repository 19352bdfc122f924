/* The CPU device's tokens: drawn by rank 0, appended by all ranks. */
#include <math.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "worker/executor_cpu_internal.h"

/* ---- samplers ---- */

/* No more rows than RUNNER_LOGITS_ROWS are sampled at once. */
enum status cpu_samplers_open(struct executor_cpu *x, struct error *err)
{
    uint32_t n = x->engine->n_threads, vocab_size = x->engine->config.vocab_size;
    x->n_samplers = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
    x->samplings = mem_array(RUNNER_LOGITS_ROWS, sizeof *x->samplings);
    x->samplers = mem_array(x->n_samplers, sizeof(struct sampler *));
    for (uint32_t i = 0; i < x->n_samplers; i++) {
        x->samplers[i] = sampler_new(vocab_size);
        if (x->samplers[i])
            continue;
        enum status s =
            error_set(err, STATUS_NO_MEMORY, "no memory for %u samplers of %llu bytes each",
                      x->n_samplers, (unsigned long long)sampler_bytes(vocab_size));
        cpu_samplers_close(x);
        return s;
    }
    return STATUS_OK;
}

void cpu_samplers_close(struct executor_cpu *x)
{
    for (uint32_t i = 0; x->samplers && i < x->n_samplers; i++)
        sampler_free(x->samplers[i]);
    mem_free(x->samplers);
    mem_free(x->samplings);
    x->samplers = NULL;
    x->samplings = NULL;
    x->n_samplers = 0;
}

uint64_t cpu_samplers_bytes(const struct executor_cpu *x)
{
    return x->n_samplers * sampler_bytes(x->engine->config.vocab_size);
}

/* ---- drawing ---- */

struct share {
    struct executor_cpu *x;
    uint32_t n, n_shares;
};

static bool wants_logprobs(const struct sampling *s)
{
    return s->row.params->n_logprobs >= 0;
}

/* Share i of the rows that need no memory of the step; one sampler each. */
static void sample_share(void *ctx, uint32_t i_share)
{
    const struct share *h = ctx;
    for (uint32_t i = i_share; i < h->n; i += h->n_shares) {
        struct sampling *s = &h->x->samplings[i];
        /* without log-probabilities there is nothing that could fail */
        if (!wants_logprobs(s))
            (void)!sampler_choose(h->x->samplers[i_share], &s->row, NULL, &s->choice, NULL, NULL);
    }
}

/* The weights are broken, or the prompt drove them out of range: said once, answered all the same.
 */
static void warn_not_finite(struct executor_cpu *x, const struct sequence *q)
{
    if (!x->warned_not_finite)
        log_warn("logits_not_finite", "slot=%u position=%u model=%s", q->slot, q->n_ids,
                 log_quote(x->engine->info.path));
    x->warned_not_finite = true;
}

/* What the device says of each row before a sampler looks at it. */
static void look_at_logits(struct executor_cpu *x, const struct batch_sample *from, float *logits,
                           uint32_t n)
{
    const struct engine *e = x->engine;
    struct view view = {logits, e->config.vocab_size};
    struct logits_top top[RUNNER_LOGITS_ROWS];
    float shift[RUNNER_LOGITS_ROWS];
    double sums[RUNNER_LOGITS_ROWS] = {0};
    bool wanted = false;
    e->device->ops->logits_top(e->device, view, n, view.stride, top);
    for (uint32_t i = 0; i < n; i++) {
        const struct sequence *q = from[i].sequence;
        x->samplings[i].row = (struct sampler_row){.params = &q->sampling,
                                                   .ids = q->ids,
                                                   .n_ids = q->n_ids,
                                                   .n_prompt = q->n_prompt,
                                                   .logits = logits + (size_t)i * view.stride,
                                                   .best_id = top[i].id,
                                                   .best = top[i].best,
                                                   .second = top[i].second};
        shift[i] = top[i].best;
        if (!isfinite(top[i].best))
            warn_not_finite(x, q);
        wanted = wanted || wants_logprobs(&x->samplings[i]);
    }
    if (wanted)
        e->device->ops->sum_exp(e->device, view, n, view.stride, shift, sums);
    for (uint32_t i = 0; i < n; i++)
        x->samplings[i].row.sum_exp = sums[i];
}

static enum status finish_sample(struct executor_cpu *x, struct sampling *s,
                                 const struct sequence *q, struct arena *arena, struct drawn *drawn,
                                 uint32_t at, struct error *err)
{
    struct logprob_row *row = NULL;
    if (wants_logprobs(s)) {
        row = arena_try_array(arena, 1, sizeof *row);
        if (!row)
            return error_set(err, STATUS_NO_MEMORY, "no memory for log-probabilities");
        TRY(sampler_choose(x->samplers[0], &s->row, arena, &s->choice, row, err));
    }
    drawn->ids[at] = s->choice.id;
    drawn->gaps[at] = s->choice.gap;
    drawn->items[at] = (struct result_item){.slot = q->slot,
                                            .ids = {&drawn->ids[at], 1},
                                            .logprobs = row,
                                            .n_logprobs = row != NULL,
                                            .gaps = {&drawn->gaps[at], 1}};
    return STATUS_OK;
}

static enum status draw_rows(struct executor_cpu *x, const struct batch_sample *from, float *logits,
                             uint32_t n, struct arena *arena, struct drawn *drawn,
                             struct error *err)
{
    look_at_logits(x, from, logits, n);
    struct share share = {x, n, x->n_samplers};
    cpu_parallel_for(x->engine->device, share.n_shares, sample_share, &share);
    for (uint32_t i = 0; i < n; i++)
        TRY(finish_sample(x, &x->samplings[i], from[i].sequence, arena, drawn, drawn->n + i, err));
    return STATUS_OK;
}

/* RUNNER_LOGITS_ROWS rows at a time. */
enum status cpu_sample_pass(struct executor_cpu *x, struct arena *arena, struct drawn *drawn,
                            struct error *err)
{
    const struct batch *b = &x->batch;
    for (uint32_t done = 0; done < b->n_samples;) {
        uint32_t rows[RUNNER_LOGITS_ROWS], n = b->n_samples - done;
        float *logits;
        n = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = b->samples[done + i].row;
        TRY(runner_logits(x->engine->runner, rows, n, &logits, err));
        if (logits) /* rank 0 */
            TRY(draw_rows(x, b->samples + done, logits, n, arena, drawn, err));
        executor_bump(&x->base);
        drawn->n += n;
        done += n;
    }
    return STATUS_OK;
}

/* ---- what was drawn ---- */

/* Rank 0 appends what it sends, at the same place in code: the ranks cannot come to differ. */
enum status cpu_append_drawn(struct executor_cpu *x, const struct msg_plan *p,
                             const struct drawn *drawn, struct error *err)
{
    const struct sequences_limits *limits = &x->info.limits;
    if (x->comm && drawn->n > 0)
        TRY(comm_broadcast(x->comm, 0, drawn->ids, drawn->n * sizeof *drawn->ids, err));
    for (uint32_t i = 0, n = 0; i < p->n_runs; i++) {
        if (!p->runs[i].sample)
            continue;
        uint32_t slot = p->runs[i].slot, id = drawn->ids[n++];
        if (id >= limits->vocab_size)
            return error_set(err, STATUS_INVALID,
                             "rank 0 drew token %u for slot %u, of a vocabulary of %u", id, slot,
                             limits->vocab_size);
        if (!sequence_push(sequences_find(x->sequences, slot), id, limits->max_model_len))
            return error_set(err, STATUS_NO_MEMORY, "no memory for the token of slot %u", slot);
    }
    return STATUS_OK;
}
