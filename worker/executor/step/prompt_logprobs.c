/* Computes the log-probabilities of a prompt's own ids, each from the row before it, with the
 * best ids of that row. All ids of a prompt are known at its admission, so the last row of a
 * chunk is no special case. When the device samples a step, it makes these values too: it
 * samples from a row in which only the prompt's next id is allowed (device_sample.c). Otherwise
 * the host reads the logits, RUNNER_LOGITS_ROWS rows at a time. The result of a row depends only
 * on its logits. */
#include "worker/executor/step/prompt_logprobs.h"

#include "common/base/mem.h"
#include "worker/executor/ranks.h"
#include "worker/runner/logits.h"

uint32_t prompt_logprob_places(const struct sampling_params *p, uint32_t vocab_size)
{
    uint32_t k = p->n_prompt_logprobs > 0 ? (uint32_t)p->n_prompt_logprobs : 0;
    k = k < SAMPLER_MAX_LOGPROBS ? k : SAMPLER_MAX_LOGPROBS;
    return 1 + (k < vocab_size ? k : vocab_size);
}

static void count_rows(struct step_prompt_logprobs *c, struct sequence_runs runs,
                       uint32_t vocab_size, uint64_t *n_entries)
{
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        uint32_t n = sequence_run_n_prompt_logprobs(r);
        c->n_items += r->sample || n > 0;
        c->n_rows += n;
        if (n > 0)
            *n_entries += (uint64_t)n * prompt_logprob_places(&r->q->sampling, vocab_size);
    }
}

/* Lays out the items and rows: one item for each run that samples or has prompt_logprobs. */
static void lay_out(struct step_prompt_logprobs *c, struct sequence_runs runs, uint32_t vocab_size,
                    uint32_t *ids, float *values)
{
    uint32_t at = 0, n_items = 0;
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        uint32_t n = sequence_run_n_prompt_logprobs(r);
        if (!r->sample && n == 0)
            continue;
        c->samples[n_items] = r->sample;
        c->items[n_items++] = (struct result_item){.slot = r->q->slot,
                                                   .prompt_logprobs = n > 0 ? c->rows + at : NULL,
                                                   .n_prompt_logprobs = n};
        uint32_t k = n > 0 ? prompt_logprob_places(&r->q->sampling, vocab_size) : 0;
        for (uint32_t p = r->start; p < r->start + n; p++, at++, ids += k, values += k) {
            c->targets[at] = r->q->ids[p + 1];
            c->rows[at] = (struct logprob_row){.ids = {ids, k}, .values = {values, k}};
        }
    }
}

enum status step_prompt_logprobs_init(const struct executor_model *x, struct step_in_flight *s,
                                      struct sequence_runs runs, struct error *err)
{
    struct step_prompt_logprobs *c = &s->prompt_logprobs;
    uint32_t vocab_size = x->info.limits.vocab_size;
    uint64_t n_entries = 0;
    *c = (struct step_prompt_logprobs){0};
    count_rows(c, runs, vocab_size, &n_entries);
    if (c->n_rows == 0 || !executor_is_sampling_rank(x))
        return STATUS_OK;
    c->rows = arena_try_array(s->arena, c->n_rows, sizeof *c->rows);
    c->targets = arena_try_array(s->arena, c->n_rows, sizeof *c->targets);
    c->items = arena_try_array(s->arena, c->n_items, sizeof *c->items);
    c->samples = arena_try_array(s->arena, c->n_items, sizeof *c->samples);
    uint32_t *ids = arena_try_array(s->arena, n_entries, sizeof *ids);
    float *values = arena_try_array(s->arena, n_entries, sizeof *values);
    if (!c->rows || !c->targets || !c->items || !c->samples || !ids || !values)
        return error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for the log-probabilities of %u rows. Free memory on this machine",
            c->n_rows);
    lay_out(c, runs, vocab_size, ids, values);
    return STATUS_OK;
}

/* ---- on the host ---- */

struct logprob_share {
    struct executor_model *x;
    const struct batch_prompt_logprob *from;
    struct sampler_row rows[RUNNER_LOGITS_ROWS];
    struct logprob_row *out;
    uint32_t n, n_shares;
};

static void logprob_rows_of_share(void *ctx, uint32_t i_share)
{
    const struct logprob_share *h = ctx;
    uint32_t vocab_size = h->x->engine->config.vocab_size;
    for (uint32_t i = i_share; i < h->n; i += h->n_shares)
        sampler_logprob(&h->rows[i], vocab_size, h->from[i].target, &h->out[i]);
}

static enum status prompt_logprob_rows(struct executor_model *x,
                                       const struct batch_prompt_logprob *from, uint32_t n,
                                       struct logprob_row *out, struct error *err)
{
    struct device *device = x->engine->device;
    struct logprob_share share = {.x = x, .from = from, .out = out, .n = n};
    struct logits_top top[RUNNER_LOGITS_ROWS];
    double sums[RUNNER_LOGITS_ROWS];
    float *logits;
    TRY(runner_look(x->engine->runner, n, top, sums, err));
    TRY(runner_read_logits(x->engine->runner, 0, n, &logits, err));
    for (uint32_t i = 0; i < n; i++)
        share.rows[i] =
            (struct sampler_row){.logits = logits + (size_t)i * x->engine->config.vocab_size,
                                 .best = top[i].best,
                                 .sum_exp = sums[i]};
    share.n_shares = x->host.n_samplers;
    device->ops->loading.parallel_for(device, share.n_shares, logprob_rows_of_share, &share);
    return STATUS_OK;
}

enum status executor_prompt_logprobs_pass(struct executor_model *x, struct step_in_flight *s,
                                          struct error *err)
{
    const struct batch *b = &x->batch;
    for (uint32_t done = 0, n; done < b->n_prompt_logprobs; done += n) {
        uint32_t rows[RUNNER_LOGITS_ROWS];
        float *logits;
        n = b->n_prompt_logprobs - done;
        n = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = b->prompt_logprobs[done + i].row;
        TRY(runner_logits(x->engine->runner, rows, n, &logits, err));
        if (logits) /* only the sampling rank has logits */
            TRY(prompt_logprob_rows(x, b->prompt_logprobs + done, n,
                                    s->prompt_logprobs.rows + s->prompt_logprobs.n_done, err));
        executor_bump(&x->base);
        s->prompt_logprobs.n_done += n;
    }
    return STATUS_OK;
}

/* ---- the result ---- */

void step_prompt_logprobs_put_items(struct step_prompt_logprobs *c,
                                    const struct result_item *sampled)
{
    for (uint32_t i = 0, n = 0; i < c->n_items; i++) {
        struct result_item rows = c->items[i];
        if (!c->samples[i])
            continue;
        c->items[i] = sampled[n++];
        c->items[i].prompt_logprobs = rows.prompt_logprobs;
        c->items[i].n_prompt_logprobs = rows.n_prompt_logprobs;
    }
}
