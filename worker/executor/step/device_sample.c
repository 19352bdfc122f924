/* Samples on the device (kernels/cuda/backend/sampler.h), by the rules of sampling/sampler.h.
 * step.c calls this file for each pass on the sampling rank. It converts the parameters of a
 * chunk of rows to the device's lists, sends the lists and enqueues the sampling. Later it reads
 * the results of a finished step. Parameters without effect and unknown ids are left out, as in
 * the host's sampler. Invariants: the lists are built in arrays that are allocated once. The
 * host samples a step that does not fit into them. Results are read only after the step's event.
 * All functions run on the compute thread. */
#include "worker/executor/step/device_sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "kernels/cuda/backend/sampler.h"
#include "worker/executor/ranks.h"
#include "worker/runner/logits.h"
#include "worker/runner/record.h"

enum { MAX_PLACES = 4096, MAX_BIASES = 65536, MAX_ALLOWED = 262144, MAX_HISTORY = 1 << 21 };

struct sample_lists {
    uint32_t max_rows;
    /* [max_rows]; number of the row in the pass; used by `d` like the other arrays */
    uint32_t *at_rows;
    struct gpu_sample_row *rows;
    struct gpu_bias *biases;
    uint32_t *allowed, *history;
    /* marks: [vocab_size], number of the last list that has the id */
    uint32_t *marks, n_marks, vocab_size;
    struct gpu_sample_lists d;
};

enum status executor_device_sampler_open(struct executor_model *x, struct error *err)
{
    if (comm_place_world(&x->place) > 1 && !x->ranks.ops->is_on_device)
        /* the host samples, because the other ranks get the ids only from the host */
        return STATUS_OK;
    TRY(x->device->open_sampler(x, &x->device_sampler, err));
    const struct gpu_sampler_options *o = &x->device_sampler->o;
    struct sample_lists *l = mem_zalloc(sizeof *l);
    l->max_rows = o->n_rows;
    l->at_rows = mem_array(o->n_rows, sizeof *l->at_rows);
    l->rows = mem_array(o->n_rows, sizeof *l->rows);
    l->biases = mem_array(o->n_biases, sizeof *l->biases);
    l->allowed = mem_array(o->n_allowed, sizeof *l->allowed);
    l->history = mem_array(o->n_history, sizeof *l->history);
    l->vocab_size = o->vocab_size;
    l->marks = mem_zalloc(l->vocab_size * sizeof *l->marks);
    x->lists = l;
    x->pending = mem_array(x->engine->pass_rows, sizeof *x->pending);
    return STATUS_OK;
}

struct gpu_sampler_options executor_device_sampler_options(const struct device *d,
                                                           uint32_t vocab_size)
{
    uint32_t n_rows = d->ops->logits_rows;
    return (struct gpu_sampler_options){
        .vocab_size = vocab_size,
        .n_slots = SEQUENCES_MAX_SLOTS,
        .n_rows = n_rows < GPU_SAMPLE_MAX_ROWS ? n_rows : GPU_SAMPLE_MAX_ROWS,
        .n_places = MAX_PLACES,
        .n_biases = MAX_BIASES,
        .n_allowed = MAX_ALLOWED,
        .n_history = MAX_HISTORY};
}

void executor_device_sampler_close(struct executor_model *x)
{
    if (x->lists) {
        mem_free(x->lists->at_rows);
        mem_free(x->lists->rows);
        mem_free(x->lists->biases);
        mem_free(x->lists->allowed);
        mem_free(x->lists->history);
        mem_free(x->lists->marks);
        mem_free(x->lists);
    }
    if (x->device_sampler)
        x->device_sampler->ops->close(x->device_sampler);
    mem_free(x->pending);
    x->lists = NULL;
    x->device_sampler = NULL;
    x->pending = NULL;
}

/* ---- can the device sample? ---- */

static bool has_penalties(const struct gpu_sample_row *r)
{
    return r->repetition != 1.0f || r->frequency != 0.0f || r->presence != 0.0f;
}

static void set_penalties(struct gpu_sample_row *r, const struct sampling_params *p)
{
    bool repeats = isfinite(p->repetition_penalty) && p->repetition_penalty > 0.0f;
    r->repetition = repeats ? p->repetition_penalty : 1.0f;
    r->frequency = isfinite(p->frequency_penalty) ? p->frequency_penalty : 0.0f;
    r->presence = isfinite(p->presence_penalty) ? p->presence_penalty : 0.0f;
}

static bool is_below_min(const struct sequence *q, uint32_t n_ids)
{
    return n_ids - q->n_prompt < q->sampling.min_tokens;
}

static uint64_t n_biases(const struct sampling_params *p)
{
    return (uint64_t)p->n_logit_bias + p->eos_ids.n + p->stop_ids.n + p->bad_words.n;
}

/* Starts a new list. The marks show in O(1) whether the list has an id already. */
static void begin_marks(struct sample_lists *l)
{
    if (++l->n_marks > 0)
        return;
    memset(l->marks, 0, l->vocab_size * sizeof *l->marks);
    l->n_marks = 1;
}

/* Marks the id. Returns false when the list has the id already or the vocabulary does not have
 * it. */
static bool mark_id(struct sample_lists *l, uint32_t id)
{
    if (id >= l->vocab_size || l->marks[id] == l->n_marks)
        return false;
    l->marks[id] = l->n_marks;
    return true;
}

static bool has_equal_ids(struct sample_lists *l, const struct sampling_params *p)
{
    begin_marks(l);
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].token < l->vocab_size && !mark_id(l, p->logit_bias[i].token))
            return true;
    return false;
}

bool executor_device_can_sample(const struct executor_model *x, struct sequence_runs runs)
{
    const struct gpu_sampler_options *o = &x->device_sampler->o;
    uint64_t places = 0, biases = 0, allowed = 0, history = 0;
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        const struct sampling_params *p = &r->q->sampling;
        uint64_t n = r->sample ? r->n_drafted + 1 : 0,
                 n_prompt_logprobs = sequence_run_n_prompt_logprobs(r);
        struct gpu_sample_row row;
        set_penalties(&row, p);
        places += n + n_prompt_logprobs;
        biases += n * n_biases(p);
        allowed += n * p->allowed_ids.n + n_prompt_logprobs;
        history += n * (has_penalties(&row) ? r->q->n_ids + r->n_drafted : 0);
        if (n > 0 && (p->grammar_kind != GRAMMAR_NONE || has_equal_ids(x->lists, p)))
            return false;
    }
    return places <= o->n_places && biases <= o->n_biases && allowed <= o->n_allowed &&
           history <= o->n_history;
}

/* Returns true when there is a bad word of several ids, which needs the ids before it. */
static bool has_long_words(const struct sampling_params *p)
{
    struct u32_span w = p->bad_words;
    for (uint32_t i = 1; i < w.n; i++)
        if (w.ptr[i] != UINT32_MAX && w.ptr[i - 1] != UINT32_MAX)
            return true;
    return false;
}

bool executor_needs_ids(struct sequence_runs runs)
{
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].sample && runs.ptr[i].q->is_pending &&
            has_long_words(&runs.ptr[i].q->sampling))
            return true;
    return false;
}

/* ---- a row ---- */

/* Adds a bias to the list unless the list has the id already. A ban is added first and therefore
 * stays. */
static void add_bias(struct sample_lists *l, struct gpu_sample_row *r, uint32_t id, float value)
{
    if (!mark_id(l, id))
        return;
    l->biases[l->d.n_biases++] = (struct gpu_bias){id, value};
    r->n_biases++;
}

static void ban_words(struct sample_lists *l, struct gpu_sample_row *r, const struct sequence *q,
                      uint32_t n_ids)
{
    struct u32_span words = q->sampling.bad_words;
    uint32_t n_out = n_ids - q->n_prompt;
    for (uint32_t start = 0, end; start < words.n; start = end + 1) {
        for (end = start; end < words.n && words.ptr[end] != UINT32_MAX;)
            end++;
        if (end == start || end - start - 1 > n_out)
            continue;
        uint32_t n_before = end - start - 1;
        if (n_before == 0 || memcmp(q->ids + (n_ids - n_before), words.ptr + start,
                                    n_before * sizeof *words.ptr) == 0)
            add_bias(l, r, words.ptr[end - 1], -INFINITY);
    }
}

static void set_biases(struct sample_lists *l, struct gpu_sample_row *r, const struct sequence *q,
                       uint32_t n_ids)
{
    const struct sampling_params *p = &q->sampling;
    r->first_bias = l->d.n_biases;
    begin_marks(l);
    ban_words(l, r, q, n_ids);
    for (uint32_t i = 0; i < p->eos_ids.n && is_below_min(q, n_ids); i++)
        add_bias(l, r, p->eos_ids.ptr[i], -INFINITY);
    for (uint32_t i = 0; i < p->stop_ids.n && is_below_min(q, n_ids); i++)
        add_bias(l, r, p->stop_ids.ptr[i], -INFINITY);
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        if (!isnan(p->logit_bias[i].bias))
            add_bias(l, r, p->logit_bias[i].token, p->logit_bias[i].bias);
}

static void set_allowed(struct sample_lists *l, struct gpu_sample_row *r,
                        const struct sampling_params *p)
{
    r->first_allowed = l->d.n_allowed;
    r->n_allowed = p->allowed_ids.n;
    r->first_mask = UINT32_MAX;
    if (p->allowed_ids.n > 0)
        memcpy(l->allowed + l->d.n_allowed, p->allowed_ids.ptr,
               p->allowed_ids.n * sizeof *l->allowed);
    l->d.n_allowed += p->allowed_ids.n;
}

/* Adds the ids of the sequence for penalties. The newest id may be known only to the device. The
 * prompt counts only for the repetition penalty. */
static void set_history(struct sample_lists *l, struct gpu_sample_row *r, const struct sequence *q,
                        uint32_t n_ids)
{
    if (!has_penalties(r))
        return;
    uint32_t from = r->repetition == 1.0f ? q->n_prompt : 0;
    r->last_is_output = q->is_pending && n_ids == q->n_ids;
    r->first_history = l->d.n_history;
    r->n_history = n_ids - from - (r->last_is_output ? 1 : 0);
    r->n_prompt = q->n_prompt - from;
    if (r->n_history > 0)
        memcpy(l->history + l->d.n_history, q->ids + from, r->n_history * sizeof *l->history);
    l->d.n_history += r->n_history;
}

static void set_filters(struct gpu_sample_row *r, const struct sampling_params *p,
                        uint32_t vocab_size)
{
    bool k = p->top_k > 0 && (uint32_t)p->top_k < vocab_size;
    r->temperature = p->temperature > 0.0f ? p->temperature : 0.0f;
    r->top_k = k ? (uint32_t)p->top_k : 0;
    r->top_p = p->top_p < 1.0f ? fmaxf(p->top_p, 0.0f) : 1.0f;
    r->min_p = p->min_p > 0.0f ? fminf(p->min_p, 1.0f) : 0.0f;
}

static void note_wants(struct gpu_sample_wants *w, const struct gpu_sample_row *r)
{
    bool is_random = r->temperature > 0.0f;
    w->changes = w->changes || r->n_biases > 0 || r->n_allowed > 0 || has_penalties(r);
    w->draws = w->draws || is_random;
    w->filters = w->filters || (is_random && (r->top_k > 0 || r->top_p < 1.0f || r->min_p > 0.0f));
    w->logprobs = w->logprobs || r->n_logprobs >= 0;
}

static void add_row(struct sample_lists *l, const struct batch_sample *from, uint32_t vocab_size)
{
    const struct sequence *q = from->run->q;
    const struct sampling_params *p = &q->sampling;
    uint32_t n_ids = q->n_ids + from->i_sample, i = l->d.n_rows++;
    int32_t k = p->n_logprobs;
    l->at_rows[i] = from->row;
    struct gpu_sample_row *r = &l->rows[i];
    *r = (struct gpu_sample_row){.seed = p->seed,
                                 .i_prompt = p->i_prompt,
                                 .i_choice = p->i_choice,
                                 .logits_row = i,
                                 .slot = q->slot,
                                 .n_ids = n_ids,
                                 .n_logprobs = k < 0 ? -1
                                               : k < (int32_t)SAMPLER_MAX_LOGPROBS
                                                   ? k
                                                   : (int32_t)SAMPLER_MAX_LOGPROBS};
    set_penalties(r, p);
    set_filters(r, p, vocab_size);
    set_allowed(l, r, p);
    set_biases(l, r, q, n_ids);
    set_history(l, r, q, n_ids);
    note_wants(&l->d.wants, r);
}

/* ---- a pass ---- */

static void begin_rows(struct sample_lists *l, uint32_t first_place)
{
    l->d = (struct gpu_sample_lists){.first_place = first_place,
                                     .at_rows = l->at_rows,
                                     .rows = l->rows,
                                     .biases = l->biases,
                                     .allowed = l->allowed,
                                     .history = l->history};
}

/* Rounds the needs of a step up to one of four kinds, because each kind has its own recording,
 * and returns the kind's number. Rows that need less skip the rest. */
static uint64_t resolve_wants(struct gpu_sample_wants *w)
{
    if (w->changes || w->logprobs)
        *w = (struct gpu_sample_wants){true, true, true, true};
    w->draws = w->draws || w->filters;
    return 1 + (w->draws ? 1u : 0) + (w->filters ? 1u : 0) + (w->changes ? 1u : 0);
}

/* Pads the first rows of a step with unused rows to a number that is recorded. Returns the key
 * of the recording, or 0 for no recording. */
static uint64_t fill_up(const struct executor_model *x, struct sample_lists *l)
{
    uint32_t n = l->d.n_rows, most = runner_sample_rows(x->engine->runner, n);
    if (l->d.first_place > 0 || most == 0 || most > l->max_rows ||
        most > x->device_sampler->o.n_places)
        return 0;
    for (uint32_t i = n; i < most; i++) {
        l->at_rows[i] = l->at_rows[0];
        l->rows[i] = (struct gpu_sample_row){.logits_row = i,
                                             .slot = UINT32_MAX,
                                             .repetition = 1.0f,
                                             .top_p = 1.0f,
                                             .first_mask = UINT32_MAX,
                                             .n_logprobs = -1};
    }
    l->d.n_rows = most;
    return resolve_wants(&l->d.wants);
}

static enum status sample_on_device(void *ctx, float *logits, struct error *err)
{
    const struct executor_model *x = ctx;
    return x->device_sampler->ops->sample(x->device_sampler, logits, x->engine->config.vocab_size,
                                          err);
}

enum status executor_device_sample_pass(struct executor_model *x, const struct step_in_flight *s,
                                        struct sampled *sampled, struct error *err)
{
    const struct batch *b = &x->batch;
    struct sample_lists *l = x->lists;
    uint32_t vocab_size = x->engine->config.vocab_size;
    for (uint32_t done = 0, n; done < b->n_samples; done += n) {
        begin_rows(l, sampled->n_done);
        while (l->d.n_rows < l->max_rows && done + l->d.n_rows < b->n_samples)
            add_row(l, &b->samples[done + l->d.n_rows], vocab_size);
        n = l->d.n_rows;
        /* unused rows would overwrite the results of prompt_logprobs */
        uint64_t key = s->prompt_logprobs.n_rows > 0 ? 0 : fill_up(x, l);
        struct runner_sample d = {
            .key = key, .n = l->d.n_rows, .sample = sample_on_device, .ctx = x};
        TRY(x->device_sampler->ops->send(x->device_sampler, s->i_sampler, &l->d, &d.at, err));
        TRY(runner_sample(x->engine->runner, &d, err));
        sampled->n_done += n;
        executor_bump(&x->base);
    }
    return STATUS_OK;
}

/* Adds a row that may sample only the prompt's next id, so that the device returns the id's
 * log-probability. */
static void add_prompt_logprob(struct sample_lists *l, const struct batch_prompt_logprob *from)
{
    uint32_t i = l->d.n_rows++;
    bool all = from->n_entries < (int32_t)SAMPLER_MAX_LOGPROBS;
    l->at_rows[i] = from->row;
    l->rows[i] = (struct gpu_sample_row){.logits_row = i,
                                         .slot = UINT32_MAX,
                                         .repetition = 1.0f,
                                         .top_p = 1.0f,
                                         .first_mask = UINT32_MAX,
                                         .first_allowed = l->d.n_allowed,
                                         .n_allowed = 1,
                                         .n_logprobs =
                                             all ? from->n_entries : (int32_t)SAMPLER_MAX_LOGPROBS};
    l->allowed[l->d.n_allowed++] = from->target;
    note_wants(&l->d.wants, &l->rows[i]);
}

enum status executor_device_prompt_logprobs_pass(struct executor_model *x, struct step_in_flight *s,
                                                 struct error *err)
{
    const struct batch *b = &x->batch;
    struct sample_lists *l = x->lists;
    for (uint32_t done = 0, n; done < b->n_prompt_logprobs; done += n) {
        begin_rows(l, s->sampled.n_places + s->prompt_logprobs.n_done);
        while (l->d.n_rows < l->max_rows && done + l->d.n_rows < b->n_prompt_logprobs)
            add_prompt_logprob(l, &b->prompt_logprobs[done + l->d.n_rows]);
        n = l->d.n_rows;
        struct runner_sample d = {.n = n, .sample = sample_on_device, .ctx = x};
        TRY(x->device_sampler->ops->send(x->device_sampler, s->i_sampler, &l->d, &d.at, err));
        TRY(runner_sample(x->engine->runner, &d, err));
        s->prompt_logprobs.n_done += n;
        executor_bump(&x->base);
    }
    return STATUS_OK;
}

void executor_mark_pending(struct executor_model *x)
{
    struct batch *b = &x->batch;
    if (b->n_pending == 0)
        return;
    for (uint32_t i = 0; i < b->rows.n_rows; i++)
        x->pending[i] = UINT32_MAX;
    for (uint32_t i = 0; i < b->n_pending; i++)
        x->pending[b->pending[i].row] = b->pending[i].q->slot;
    b->rows.pending = x->pending;
    b->rows.last = x->device_sampler->last;
}

/* ---- results ---- */

static enum status take_logprobs(const struct gpu_sampled *g, struct arena *arena,
                                 struct logprob_row *out, struct error *err)
{
    uint32_t n = g->n_top < GPU_SAMPLE_MAX_LOGPROBS ? g->n_top : GPU_SAMPLE_MAX_LOGPROBS;
    uint32_t *ids = arena_try_array(arena, n + 1, sizeof *ids);
    float *values = arena_try_array(arena, n + 1, sizeof *values);
    if (!ids || !values)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u log-probabilities. Free memory on this machine",
                         n + 1);
    ids[0] = g->id;
    values[0] = g->logprob;
    memcpy(ids + 1, g->top_ids, n * sizeof *ids);
    memcpy(values + 1, g->top_logprobs, n * sizeof *values);
    *out = (struct logprob_row){.ids = {ids, n + 1}, .values = {values, n + 1}, g->rank};
    return STATUS_OK;
}

enum status executor_take_sampled(struct executor_model *x, struct step_in_flight *s, uint32_t at,
                                  bool logprobs, struct error *err)
{
    const struct gpu_sampled *g = &x->device_sampler->results[s->i_sampler][at];
    if (g->id >= x->info.limits.vocab_size)
        return error_set(err, STATUS_IO,
                         "the device sampled token %u, which is outside the vocabulary of %u "
                         "tokens. Report this bug",
                         g->id, x->info.limits.vocab_size);
    if (!(fabsf(g->best) < FLT_MAX) && !x->warned_not_finite) {
        log_warn("logits_not_finite", "step=%llu place=%u model=%s", (unsigned long long)s->step,
                 at, log_quote(x->engine->info.path));
        x->warned_not_finite = true;
    }
    s->sampled.ids[at] = g->id;
    s->sampled.gaps[at] = g->gap;
    return logprobs ? take_logprobs(g, s->arena, &s->sampled.logprobs[at], err) : STATUS_OK;
}

/* Copies the results into the rows, whose ids and values were laid out for the request. An id
 * whose logit is not a number cannot be sampled. The device returns another id in its place. */
void executor_take_prompt_logprobs(const struct executor_model *x, struct step_in_flight *s)
{
    struct step_prompt_logprobs *c = &s->prompt_logprobs;
    const struct gpu_sampled *all = x->device_sampler->results[s->i_sampler] + s->sampled.n_places;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const struct gpu_sampled *g = &all[i];
        struct logprob_row *row = &c->rows[i];
        uint32_t *ids = (uint32_t *)row->ids.ptr, n = row->ids.n - 1;
        float *values = (float *)row->values.ptr;
        n = g->n_top < n ? g->n_top : n;
        ids[0] = c->targets[i];
        values[0] = g->id == ids[0] ? g->logprob : -FLT_MAX;
        memcpy(ids + 1, g->top_ids, n * sizeof *ids);
        memcpy(values + 1, g->top_logprobs, n * sizeof *values);
        row->ids.n = row->values.n = n + 1;
        row->chosen_rank = g->id == ids[0] ? g->rank : x->info.limits.vocab_size;
    }
}
