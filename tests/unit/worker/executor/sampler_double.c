/* Implements a double of a device that samples (kernels/cuda/backend/sampler.h), on the CPU. It
 * samples by worker/sampling/sampler.h from the parameters that a device gets. The host cannot
 * read the sampled ids until it requests them, as on a real device. The tests include this file.
 * One test at a time uses the double, on the thread of its executor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "worker/executor/device/model.h"
#include "worker/executor/step/device_sample.h"

struct sampler_double {
    struct gpu_sampler base;
    struct device *device;
    struct sampler *sampler;
    struct gpu_sampled *hidden[GPU_SAMPLER_STEPS], *shown[GPU_SAMPLER_STEPS];
    bool ended[GPU_SAMPLER_STEPS], hangs;
    uint32_t n_asked[GPU_SAMPLER_STEPS];
    struct gpu_sample_lists sent; /* sent lists, which stay valid until the step is sampled */
    uint32_t i_sent, stride;
    float *logits;
    /* number of rows that are sampled, and of those with a pending id */
    uint32_t n_rows, n_pending;
    uint32_t n_prompt_logprobs; /* rows of prompts, which sample no next id */
};

static struct sampler_double *sampler_double; /* double of the current test */

static void double_begin(struct gpu_sampler *w, uint32_t i_step)
{
    struct sampler_double *x = (struct sampler_double *)w;
    memset(x->hidden[i_step], 0xff, w->o.n_places * sizeof *x->hidden[0]);
    memset(x->shown[i_step], 0xff, w->o.n_places * sizeof *x->shown[0]);
    x->ended[i_step] = false;
    x->n_asked[i_step] = 0;
}

/* Returns ids in the form that the sampler needs. Ids that the device does not get are replaced
 * by a value without effect. */
static uint32_t *all_ids(struct sampler_double *x, const struct gpu_sample_lists *d,
                         const struct gpu_sample_row *r, uint32_t *n_prompt)
{
    uint32_t n_known = r->n_history + (r->last_is_output ? 1 : 0), before = r->n_ids - n_known;
    uint32_t *ids = calloc(r->n_ids + 1, sizeof *ids);
    if (r->n_history > 0)
        memcpy(ids + before, d->history + r->first_history, r->n_history * sizeof *ids);
    if (r->last_is_output)
        ids[r->n_ids - 1] = x->base.last[r->slot];
    *n_prompt = before + r->n_prompt;
    return ids;
}

static void draw_one(struct sampler_double *x, const struct gpu_sample_lists *d,
                     const struct gpu_sample_row *r, struct gpu_sampled *out)
{
    struct logit_bias bias[1024];
    uint32_t n_prompt = 0, *ids = all_ids(x, d, r, &n_prompt), vocab = x->base.o.vocab_size;
    struct sampling_params p = {.temperature = r->temperature,
                                .top_p = r->top_p,
                                .min_p = r->min_p,
                                .top_k = (int32_t)r->top_k,
                                .repetition_penalty = r->repetition,
                                .frequency_penalty = r->frequency,
                                .presence_penalty = r->presence,
                                .seed = r->seed,
                                .i_prompt = r->i_prompt,
                                .i_choice = r->i_choice,
                                .n_logprobs = r->n_logprobs,
                                .allowed_ids = {d->allowed + r->first_allowed, r->n_allowed},
                                .logit_bias = bias,
                                .n_logit_bias = r->n_biases};
    const struct view row = {x->logits + (size_t)r->logits_row * x->stride, x->stride};
    struct logits_top top;
    struct sampler_choice choice;
    struct logprob_row logprobs = {.ids = {NULL, 1}};
    struct arena arena;
    struct error err;
    double sum = 0;
    if (r->n_biases > 1024 || r->first_mask != UINT32_MAX)
        abort();
    for (uint32_t i = 0; i < r->n_biases; i++) {
        bias[i] = (struct logit_bias){d->biases[r->first_bias + i].id,
                                      d->biases[r->first_bias + i].value};
        for (uint32_t k = 0; k < i; k++)
            if (bias[k].token == bias[i].token)
                abort(); /* each id may occur only once in a list */
    }
    x->device->ops->math.logits_top(x->device, row, 1, vocab, &top);
    x->device->ops->math.sum_exp(x->device, row, 1, vocab, &top.best, &sum);
    arena_init(&arena, 0);
    const struct sampler_row s = {.params = &p,
                                  .ids = ids,
                                  .n_ids = r->n_ids,
                                  .n_prompt = n_prompt,
                                  .logits = row.data,
                                  .best_id = top.id,
                                  .best = top.best,
                                  .second = top.second,
                                  .sum_exp = sum};
    if (sampler_choose(x->sampler, &s, &arena, &choice, &logprobs, &err) != STATUS_OK)
        abort();
    *out = (struct gpu_sampled){
        .id = choice.id, .gap = choice.gap, .best = top.best, .n_top = logprobs.ids.n - 1};
    if (r->n_logprobs >= 0) {
        out->rank = logprobs.chosen_rank;
        out->logprob = logprobs.values.ptr[0];
        memcpy(out->top_ids, logprobs.ids.ptr + 1, out->n_top * sizeof *out->top_ids);
        memcpy(out->top_logprobs, logprobs.values.ptr + 1, out->n_top * sizeof *out->top_logprobs);
    }
    arena_fini(&arena);
    free(ids);
}

static enum status double_send(struct gpu_sampler *w, uint32_t i_step,
                               const struct gpu_sample_lists *d, const uint32_t **at,
                               struct error *err)
{
    struct sampler_double *x = (struct sampler_double *)w;
    x->sent = *d;
    x->i_sent = i_step;
    *at = d->at_rows;
    return STATUS_OK;
}

static enum status double_sample(struct gpu_sampler *w, float *logits, uint32_t stride,
                                 struct error *err)
{
    struct sampler_double *x = (struct sampler_double *)w;
    const struct gpu_sample_lists *d = &x->sent;
    uint32_t i_step = x->i_sent;
    x->logits = logits;
    x->stride = stride;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        struct gpu_sampled *out = &x->hidden[i_step][d->first_place + i];
        draw_one(x, d, &d->rows[i], out);
        x->n_pending += d->rows[i].last_is_output;
        x->n_rows += d->rows[i].slot != UINT32_MAX;
        x->n_prompt_logprobs += d->rows[i].slot == UINT32_MAX;
    }
    for (uint32_t i = 0; i < d->n_rows; i++) /* all rows first read the ids sampled before */
        if (d->rows[i].slot != UINT32_MAX)
            w->last[d->rows[i].slot] = x->hidden[i_step][d->first_place + i].id;
    return STATUS_OK;
}

static enum status double_end(struct gpu_sampler *w, uint32_t i_step, uint32_t n_places,
                              uint32_t n_slots, struct error *err)
{
    ((struct sampler_double *)w)->ended[i_step] = true;
    return STATUS_OK;
}

static enum status double_query(struct gpu_sampler *w, uint32_t i_step, struct error *err)
{
    struct sampler_double *x = (struct sampler_double *)w;
    return x->hangs || x->n_asked[i_step]++ < 3 ? STATUS_AGAIN : STATUS_OK;
}

static enum status double_wait(struct gpu_sampler *w, uint32_t i_step, struct error *err)
{
    struct sampler_double *x = (struct sampler_double *)w;
    if (!x->ended[i_step])
        abort();
    memcpy(x->shown[i_step], x->hidden[i_step], w->o.n_places * sizeof *x->shown[0]);
    return STATUS_OK;
}

static void double_close(struct gpu_sampler *w)
{
    struct sampler_double *x = (struct sampler_double *)w;
    for (uint32_t i = 0; i < GPU_SAMPLER_STEPS; i++) {
        free(x->hidden[i]);
        free(x->shown[i]);
    }
    sampler_free(x->sampler);
    free(w->last);
    free(x);
    sampler_double = NULL;
}

static enum status double_open(struct executor_model *x, struct gpu_sampler **out,
                               struct error *err)
{
    static const struct gpu_sampler_ops ops = {.begin = double_begin,
                                               .send = double_send,
                                               .sample = double_sample,
                                               .end = double_end,
                                               .query = double_query,
                                               .wait = double_wait,
                                               .close = double_close};
    struct sampler_double *d = calloc(1, sizeof *d);
    d->base = (struct gpu_sampler){
        .ops = &ops,
        .o = executor_device_sampler_options(x->engine->device, x->engine->config.vocab_size)};
    d->base.o.n_places = 512;
    d->device = x->engine->device;
    d->sampler = sampler_new(d->base.o.vocab_size);
    d->base.last = calloc(d->base.o.n_slots, sizeof *d->base.last);
    for (uint32_t i = 0; i < GPU_SAMPLER_STEPS; i++) {
        d->hidden[i] = calloc(d->base.o.n_places, sizeof *d->hidden[i]);
        d->base.results[i] = d->shown[i] = calloc(d->base.o.n_places, sizeof *d->shown[i]);
    }
    *out = &d->base;
    sampler_double = d;
    return STATUS_OK;
}

static uint64_t double_memory_bytes(const struct executor_model *x)
{
    return 1 << 30;
}

static void double_name(const struct executor_model *x, char *out, size_t size)
{
    snprintf(out, size, "a CPU that samples");
}

/* Opens an executor like `executor_cpu_open`, on a CPU that samples. */
static enum status double_executor_open(const struct worker_options *o, struct executor **out,
                                        struct error *err)
{
    static const struct executor_device device = {.kind = DEVICE_CPU,
                                                  .activations = "float32",
                                                  .draft_max_seqs = 2,
                                                  .memory_bytes = double_memory_bytes,
                                                  .name = double_name,
                                                  .open_sampler = double_open};
    return executor_model_open(&device, NULL, o, out, err);
}
