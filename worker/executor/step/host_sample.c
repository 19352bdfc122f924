/* Samples on the host. step.c calls executor_sample_pass after each pass on all ranks of the
 * last stage. It makes the masks, and gets the logits or, for greedy rows, only the two best.
 * Then it samples RUNNER_LOGITS_ROWS rows at a time on the device's threads. The ids are written
 * to `struct sampled`; append.c appends them on all ranks. Invariants: only the sampling rank
 * has samplers and masks, but all ranks of the stage make the same calls of the runner. Each
 * thread has its own sampler. Rows that need memory of the arena are sampled on the compute
 * thread. */
#include "worker/executor/step/host_sample.h"

#include <math.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/executor/ranks.h"
#include "worker/grammar/grammars.h"
#include "worker/runner/logits.h"

struct share {
    struct executor_model *x;
    uint32_t n, n_shares;
};

static bool wants_logprobs(const struct sampling *s)
{
    return s->row.params->n_logprobs >= 0;
}

/* Samples every n_shares-th row with the sampler of this share. Rows with log-probabilities need
 * the arena and are left out. */
static void sample_share(void *ctx, uint32_t i_share)
{
    const struct share *h = ctx;
    for (uint32_t i = i_share; i < h->n; i += h->n_shares) {
        struct sampling *s = &h->x->host.samplings[i];
        /* sampler_choose cannot fail without log-probabilities */
        if (!wants_logprobs(s))
            (void)!sampler_choose(h->x->host.samplers[i_share], &s->row, NULL, &s->choice, NULL,
                                  NULL);
    }
}

/* Warns once about logits that are not finite: the weights are broken, or the prompt led to an
 * overflow. The request is answered all the same. */
static void warn_not_finite(struct executor_model *x, const struct sequence *q)
{
    if (!x->warned_not_finite)
        log_warn("logits_not_finite", "slot=%u position=%u model=%s", q->slot, q->n_ids,
                 log_quote(x->engine->info.path));
    x->warned_not_finite = true;
}

/* `masked` groups the rows of a pass by sequence. The masks of one sequence depend on each
 * other; those of different sequences do not. */
struct masked {
    struct executor_model *x;
    const struct batch_sample *from;
    uint32_t at[RUNNER_LOGITS_ROWS + 1]; /* [n + 1]; first row of each sequence, then the end */
    uint32_t n, n_shares;
    uint64_t *costs; /* [n_shares]; units of each share */
};

static float gap_of(enum grammar_end end)
{
    /* the array is indexed by enum grammar_end */
    static const float gaps[] = {0, RESULT_DEAD_END, RESULT_MASK_COST};
    return gaps[end];
}

static void mask_share(void *ctx, uint32_t i_share)
{
    const struct masked *m = ctx;
    struct executor_model *x = m->x;
    for (uint32_t i = i_share; i < m->n; i += m->n_shares) {
        bool has[RUNNER_LOGITS_ROWS];
        enum grammar_end ends[RUNNER_LOGITS_ROWS];
        uint32_t units[RUNNER_LOGITS_ROWS], kib[RUNNER_LOGITS_ROWS];
        uint32_t at = m->at[i], n = m->at[i + 1] - at;
        const struct batch_sample *first = &m->from[at];
        if (first->run->q->sampling.grammar_kind == GRAMMAR_NONE)
            continue;
        uint32_t *words = x->host.masks + (size_t)at * x->host.n_mask_words;
        grammars_mask(x->host.grammars, first->run->q,
                      (struct grammar_places){first->i_sample, n, words, has, ends, units, kib});
        for (uint32_t k = 0; k < n; k++) {
            x->host.samplings[at + k].row.mask =
                has[k] ? words + (size_t)k * x->host.n_mask_words : NULL;
            x->host.samplings[at + k].end_gap = gap_of(ends[k]);
            x->host.samplings[at + k].mask_units = units[k];
            x->host.samplings[at + k].matcher_kib = kib[k];
            m->costs[i_share] += units[k];
        }
    }
}

/* Divides the time that the step waited for masks among the rows, in proportion to the cost of
 * their masks. The time must be measured. On a slow or busy machine a unit takes longer than the
 * constant says, and the head would underestimate the masks. */
static void say_units_of_step(struct executor_model *x, const struct masked *m, uint64_t took_ns)
{
    double sum = 0, all = (double)took_ns / PROTO_MASK_UNIT_NS;
    for (uint32_t i = 0; i < m->n_shares; i++)
        sum += (double)m->costs[i];
    for (uint32_t i = 0; i < m->at[m->n]; i++) {
        uint32_t *units = &x->host.samplings[i].mask_units;
        double own = sum > 0 ? (double)*units / sum * all : 0;
        *units = own < UINT32_MAX ? (uint32_t)own : UINT32_MAX;
    }
}

/* Makes the masks of n rows. Meanwhile a GPU still computes these rows. */
static void make_masks(struct executor_model *x, const struct batch_sample *from, uint32_t n)
{
    uint64_t costs[RUNNER_LOGITS_ROWS] = {0};
    struct masked m = {.x = x, .from = from, .costs = costs};
    uint32_t n_constrained = 0;
    uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++) {
        const struct sequence *q = from[i].run->q;
        x->host.samplings[i].row.mask = NULL;
        x->host.samplings[i].end_gap = 0;
        x->host.samplings[i].mask_units = x->host.samplings[i].matcher_kib = 0;
        if (i > 0 && from[i - 1].run->q == q)
            continue;
        m.at[m.n++] = i;
        if (q->sampling.grammar_kind == GRAMMAR_NONE)
            continue;
        grammars_enter(x->host.grammars, q);
        n_constrained++;
    }
    m.at[m.n] = n;
    m.n_shares = n_constrained < x->host.n_samplers ? n_constrained : x->host.n_samplers;
    if (m.n_shares == 1)
        mask_share(&m, 0);
    else if (m.n_shares > 1)
        x->engine->device->ops->loading.parallel_for(x->engine->device, m.n_shares, mask_share, &m);
    say_units_of_step(x, &m, clock_mono_ns() - begin_ns);
}

static struct sampler_row row_of(const struct batch_sample *from)
{
    const struct sequence *q = from->run->q;
    return (struct sampler_row){.params = &q->sampling,
                                .ids = q->ids,
                                .n_ids = q->n_ids + from->i_sample,
                                .n_prompt = q->n_prompt};
}

/* Fills the rows that the sampler reads. `logits` is NULL when no row needs them. */
static void set_rows(struct executor_model *x, const struct batch_sample *from, uint32_t n,
                     const struct logits_top *top, float *logits)
{
    for (uint32_t i = 0; i < n; i++) {
        struct sampler_row *r = &x->host.samplings[i].row;
        const uint32_t *mask = r->mask;
        *r = row_of(&from[i]);
        r->mask = mask;
        r->logits = logits ? logits + (size_t)i * x->engine->config.vocab_size : NULL;
        r->best_id = top[i].id;
        r->best = top[i].best;
        r->second = top[i].second;
        if (!isfinite(top[i].best))
            warn_not_finite(x, from[i].run->q);
    }
}

static enum status look_at_logits(struct executor_model *x, const struct batch_sample *from,
                                  uint32_t n, struct error *err)
{
    struct logits_top top[RUNNER_LOGITS_ROWS];
    double sums[RUNNER_LOGITS_ROWS] = {0};
    bool wanted = false;
    float *logits;
    for (uint32_t i = 0; i < n; i++)
        wanted = wanted || from[i].run->q->sampling.n_logprobs >= 0;
    TRY(runner_look(x->engine->runner, n, top, wanted ? sums : NULL, err));
    TRY(runner_read_logits(x->engine->runner, 0, n, &logits, err));
    set_rows(x, from, n, top, logits);
    for (uint32_t i = 0; i < n; i++)
        x->host.samplings[i].row.sum_exp = sums[i];
    return STATUS_OK;
}

/* `best_rows` holds the best two logits of the samples begin .. end, which need no other logits. */
struct best_rows {
    uint32_t begin, end;
    struct logits_top top[RUNNER_BEST_ROWS];
};

/* Returns true when the two best logits are enough. All ranks get the same result, because they
 * have the same sequences. */
static bool needs_best_only(const struct batch_sample *from)
{
    const struct sampler_row row = row_of(from);
    return from->run->q->sampling.grammar_kind == GRAMMAR_NONE && sampler_needs_best_only(&row);
}

/* Finds the best logits of the next rows that need no other logits. Takes whole chunks of
 * RUNNER_LOGITS_ROWS, unless no other rows are left, so that later chunks stay full. */
static enum status find_best(struct executor_model *x, uint32_t at, struct best_rows *best,
                             struct error *err)
{
    const struct batch *b = &x->batch;
    uint32_t rows[RUNNER_BEST_ROWS], n = 0, left = b->n_samples - at;
    if (runner_finds_best(x->engine->runner))
        while (n < left && n < RUNNER_BEST_ROWS && needs_best_only(&b->samples[at + n]))
            n++;
    if (n < left)
        n -= n % RUNNER_LOGITS_ROWS;
    best->begin = at;
    best->end = at + n;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = b->samples[at + i].row;
    return n > 0 ? runner_best(x->engine->runner, rows, n, best->top, err) : STATUS_OK;
}

/* Returns true when all earlier draft tokens of the run were accepted. Rows after a rejected
 * draft token do not count. */
static bool counts(const struct sampled *d, const struct batch_sample *from, uint32_t at)
{
    const struct sequence *q = from->run->q;
    for (uint32_t i = 0; i < from->i_sample; i++)
        if (d->ids[at - from->i_sample + i] != q->ids[q->n_ids + i])
            return false;
    return true;
}

static enum status finish_sample(struct executor_model *x, struct sampling *s, struct arena *arena,
                                 struct sampled *d, uint32_t at, struct error *err)
{
    if (wants_logprobs(s))
        TRY(sampler_choose(x->host.samplers[0], &s->row, arena, &s->choice, &d->logprobs[at], err));
    d->ids[at] = s->choice.id;
    d->gaps[at] = s->end_gap < 0 ? s->end_gap : s->choice.gap;
    return STATUS_OK;
}

static enum status host_sample_rows(struct executor_model *x, const struct batch_sample *from,
                                    uint32_t n, struct arena *arena, struct sampled *d,
                                    struct error *err)
{
    struct device *device = x->engine->device;
    struct share share = {x, n, x->host.n_samplers};
    device->ops->loading.parallel_for(device, share.n_shares, sample_share, &share);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = d->n_done + i;
        d->ids[at] = 0;
        if (d->mask_units) {
            d->mask_units[at] = x->host.samplings[i].mask_units;
            d->matcher_kib[at] = x->host.samplings[i].matcher_kib;
        }
        if (counts(d, &from[i], at))
            TRY(finish_sample(x, &x->host.samplings[i], arena, d, at, err));
    }
    return STATUS_OK;
}

/* Gets the logits or best logits of n samples, and fills the rows on the sampling rank. */
static enum status find_logits(struct executor_model *x, uint32_t at, uint32_t n,
                               const struct best_rows *best, struct error *err)
{
    const struct batch_sample *from = x->batch.samples + at;
    uint32_t rows[RUNNER_LOGITS_ROWS];
    float *logits;
    if (best->end > at) {
        if (executor_is_sampling_rank(x))
            set_rows(x, from, n, best->top + (at - best->begin), NULL);
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < n; i++)
        rows[i] = from[i].row;
    TRY(runner_logits(x->engine->runner, rows, n, &logits, err));
    return executor_is_sampling_rank(x) ? look_at_logits(x, from, n, err) : STATUS_OK;
}

/* Samples RUNNER_LOGITS_ROWS rows at a time. */
enum status executor_sample_pass(struct executor_model *x, struct arena *arena,
                                 struct sampled *sampled, struct error *err)
{
    const struct batch *b = &x->batch;
    struct best_rows best = {0};
    for (uint32_t at = 0, n; at < b->n_samples; at += n) {
        n = b->n_samples - at < RUNNER_LOGITS_ROWS ? b->n_samples - at : RUNNER_LOGITS_ROWS;
        if (at >= best.end)
            TRY(find_best(x, at, &best, err));
        if (executor_is_sampling_rank(x))
            make_masks(x, b->samples + at, n);
        TRY(find_logits(x, at, n, &best, err));
        if (executor_is_sampling_rank(x))
            TRY(host_sample_rows(x, b->samples + at, n, arena, sampled, err));
        executor_bump(&x->base);
        sampled->n_done += n;
    }
    return STATUS_OK;
}
