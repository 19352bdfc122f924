/* Chooses the next token from one row of logits, in the steps of sampler.h. step/host_sample.c
 * calls sampler_choose for each row, on several threads with one sampler each. prompt_logprobs.c
 * calls sampler_logprob.
 * Invariants: the result depends only on the row and its parameters, not on earlier calls.
 * Scratch memory is as large as the vocabulary and is allocated once. Ids and parameters from
 * requests are checked here, so that no index leaves the vocabulary. The device's sampler
 * (step/device_sample.c) follows the same rules. */
#include "worker/sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/sampling/candidates.h"
#include "worker/sampling/sweep.h"

/* `sampler` holds scratch memory with the size of the vocabulary, allocated once. `counts` is
 * all zeros between calls: each call clears its entries by walking the same ids again. */
struct sampler {
    uint32_t vocab_size;
    uint32_t *counts; /* counts of generated ids; SEEN marks an id that was penalised */
    float *raw;       /* copy of the raw logits, when they are changed and still needed */
    struct candidate *candidates; /* candidates of the call, [vocab_size] */
};
#define SEEN (1u << 31)

struct sampler *sampler_new(uint32_t vocab_size)
{
    struct sampler *s = mem_zalloc(sizeof *s);
    s->vocab_size = vocab_size;
    s->counts = mem_try_array(vocab_size, sizeof *s->counts);
    s->raw = mem_try_array(vocab_size, sizeof *s->raw);
    s->candidates = mem_try_array(vocab_size, sizeof *s->candidates);
    if (s->counts && s->raw && s->candidates)
        return s;
    sampler_free(s);
    return NULL;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    mem_free(s->counts);
    mem_free(s->raw);
    mem_free(s->candidates);
    mem_free(s);
}

uint64_t sampler_bytes(uint32_t vocab_size)
{
    const struct sampler *s = NULL;
    return vocab_size * (uint64_t)(sizeof *s->counts + sizeof *s->raw + sizeof *s->candidates);
}

/* `penalties` holds the penalties of a row. A value that changes nothing or is not a number is
 * replaced by the neutral one. */
struct penalties {
    float repetition, frequency, presence;
};

/* `choosing` is the state of one call. */
struct choosing {
    struct sampler *s;
    const struct sampler_row *r;
    const struct sampling_params *p;
    float *logits;
    struct u32_span generated;
    struct penalties penalties;
    bool changed; /* steps 1 and 2 apply, so log-probabilities use s->raw */
    float max;    /* largest logit after steps 1 and 2; -inf = no id is allowed */
    uint32_t i_max;
};

/* ---- step 1: allowed ids ---- */

static void ban(struct choosing *c, uint32_t id)
{
    if (id < c->s->vocab_size)
        c->logits[id] = -INFINITY;
}

static void apply_allowed(struct choosing *c)
{
    for (uint32_t i = 0; i < c->s->vocab_size; i++)
        c->logits[i] = -INFINITY;
    for (uint32_t i = 0; i < c->p->allowed_ids.n; i++) {
        uint32_t id = c->p->allowed_ids.ptr[i];
        if (id < c->s->vocab_size)
            c->logits[id] = c->s->raw[id];
    }
}

static bool is_masked(const uint32_t *mask, uint32_t id)
{
    return (mask[id / 32] >> (id % 32) & 1) == 0;
}

static void apply_mask(struct choosing *c)
{
    for (uint32_t i = 0; i < c->s->vocab_size; i++)
        if (is_masked(c->r->mask, i))
            c->logits[i] = -INFINITY;
}

/* Returns the id that is chosen when no id is allowed. */
static uint32_t last_resort(const struct choosing *c)
{
    uint32_t id = c->r->best_id < c->s->vocab_size ? c->r->best_id : 0;
    if (!c->r->mask || !is_masked(c->r->mask, id))
        return id;
    for (uint32_t i = 0; i < c->s->vocab_size; i++)
        if (!is_masked(c->r->mask, i))
            return i;
    return id;
}

/* Bans the last id of a bad word when its other ids were just generated. */
static void apply_bad_words(struct choosing *c)
{
    struct u32_span words = c->p->bad_words, out = c->generated;
    for (uint32_t start = 0, end; start < words.n; start = end + 1) {
        for (end = start; end < words.n && words.ptr[end] != UINT32_MAX;)
            end++;
        if (end == start || end - start - 1 > out.n)
            continue;
        uint32_t n_before = end - start - 1;
        if (n_before == 0 || memcmp(out.ptr + (out.n - n_before), words.ptr + start,
                                    n_before * sizeof *words.ptr) == 0)
            ban(c, words.ptr[end - 1]);
    }
}

static void apply_min_tokens(struct choosing *c)
{
    if (c->generated.n >= c->p->min_tokens)
        return;
    for (uint32_t i = 0; i < c->p->eos_ids.n; i++)
        ban(c, c->p->eos_ids.ptr[i]);
    for (uint32_t i = 0; i < c->p->stop_ids.n; i++)
        ban(c, c->p->stop_ids.ptr[i]);
}

static void apply_logit_bias(struct choosing *c)
{
    for (uint32_t i = 0; i < c->p->n_logit_bias; i++) {
        struct logit_bias b = c->p->logit_bias[i];
        if (b.token < c->s->vocab_size && !isnan(b.bias))
            c->logits[b.token] = candidate_value(c->logits[b.token]) + b.bias;
    }
}

/* ---- step 2: penalties ---- */

static struct penalties penalties_of(const struct sampling_params *p)
{
    struct penalties x = {p->repetition_penalty, p->frequency_penalty, p->presence_penalty};
    if (!(isfinite(x.repetition) && x.repetition > 0.0f))
        x.repetition = 1.0f;
    if (!isfinite(x.frequency))
        x.frequency = 0.0f;
    if (!isfinite(x.presence))
        x.presence = 0.0f;
    return x;
}

static bool penalties_are_off(const struct penalties *x)
{
    return x->repetition == 1.0f && x->frequency == 0.0f && x->presence == 0.0f;
}

static void apply_penalties(struct choosing *c)
{
    const struct penalties *x = &c->penalties;
    uint32_t *counts = c->s->counts, vocab_size = c->s->vocab_size;
    struct u32_span all = {c->r->ids, c->r->n_ids};
    if (x->repetition == 1.0f)
        all = c->generated; /* only the repetition penalty uses the prompt's ids */
    for (uint32_t i = 0; i < c->generated.n; i++)
        if (c->generated.ptr[i] < vocab_size)
            counts[c->generated.ptr[i]]++;
    for (uint32_t i = 0; i < all.n; i++) {
        uint32_t id = all.ptr[i];
        if (id >= vocab_size || counts[id] & SEEN)
            continue;
        float v = candidate_value(c->logits[id]);
        v = v > 0.0f ? v / x->repetition : v * x->repetition;
        if (counts[id] > 0)
            v -= x->frequency * (float)counts[id] + x->presence;
        c->logits[id] = v;
        counts[id] |= SEEN;
    }
    for (uint32_t i = 0; i < all.n; i++)
        if (all.ptr[i] < vocab_size)
            counts[all.ptr[i]] = 0;
}

/* ---- the row after steps 1 and 2 ---- */

static bool log_probabilities_wanted(const struct sampling_params *p)
{
    return p->n_logprobs >= 0;
}

static bool changes_logits(const struct choosing *c)
{
    const struct sampling_params *p = c->p;
    return p->allowed_ids.n > 0 || p->bad_words.n > 0 || c->generated.n < p->min_tokens ||
           p->n_logit_bias > 0 || !penalties_are_off(&c->penalties);
}

/* Finds the largest logit of the row as it is now, and returns the second largest. */
static float find_max(struct choosing *c)
{
    float second = -INFINITY;
    c->max = -INFINITY;
    c->i_max = last_resort(c);
    for (uint32_t i = 0; i < c->s->vocab_size; i++) {
        if (!(c->logits[i] > second))
            continue;
        float v = candidate_value(c->logits[i]);
        if (v > c->max) {
            second = c->max;
            c->max = v;
            c->i_max = i;
        } else if (v > second) {
            second = v;
        }
    }
    return second;
}

/* Applies steps 1 and 2. Returns the second largest logit. */
static float prepare(struct choosing *c)
{
    if (!c->changed) {
        c->max = candidate_value(c->r->best);
        c->i_max = c->r->best_id;
        if (c->logits && (c->i_max >= c->s->vocab_size || c->max == -INFINITY))
            return find_max(c);
        return candidate_value(c->r->second);
    }
    if (log_probabilities_wanted(c->p) || c->p->allowed_ids.n > 0)
        memcpy(c->s->raw, c->logits, c->s->vocab_size * sizeof *c->logits);
    if (c->p->allowed_ids.n > 0)
        apply_allowed(c);
    if (c->r->mask)
        apply_mask(c);
    apply_bad_words(c);
    apply_min_tokens(c);
    apply_logit_bias(c);
    if (!penalties_are_off(&c->penalties))
        apply_penalties(c);
    return find_max(c);
}

/* ---- steps 3 to 5 ---- */

static struct sampler_choice chosen(uint32_t id, double best, double second)
{
    float gap = second > -(double)INFINITY ? (float)(best - second) : INFINITY;
    return (struct sampler_choice){id, gap > FLT_MIN ? gap : FLT_MIN};
}

/* Applies step 4 and writes the remaining candidates to s->candidates. Returns their number,
 * which is at least one. */
static uint32_t filter(struct choosing *c, double temperature, uint32_t top_k)
{
    const struct sampling_params *p = c->p;
    const uint32_t vocab_size = c->s->vocab_size;
    struct candidate *out = c->s->candidates;
    const double top_p = fmax((double)p->top_p, 0.0);
    double limit = -(double)INFINITY;
    /* min_p is relative to the largest probability, and log(p / p_max) is a difference of logits */
    if (p->min_p > 0.0f)
        limit = (double)c->max / temperature + log(fmin((double)p->min_p, 1.0));
    else if (top_k == vocab_size)
        return candidates_top_p_of(c->logits, vocab_size, c->max, temperature, top_p, out);
    uint32_t n = 0;
    for (uint32_t begin = 0; begin < vocab_size; begin += SWEEP_BLOCK) {
        uint32_t left = vocab_size - begin;
        uint32_t end = begin + (left < SWEEP_BLOCK ? left : SWEEP_BLOCK);
        double least = limit * temperature; /* smaller logits are dropped */
        if (top_k < vocab_size && n == top_k)
            least = fmax(least, (double)out[0].value);
        if (!sweep_reaches(c->logits + begin, end - begin, least))
            continue;
        for (uint32_t i = begin; i < end; i++) {
            struct candidate it = {candidate_value(c->logits[i]), i};
            if (it.value == -INFINITY || (double)it.value / temperature < limit)
                continue;
            if (top_k == vocab_size)
                out[n++] = it;
            else
                candidates_push(out, &n, top_k, it);
        }
    }
    if (p->top_p < 1.0f)
        n = candidates_top_p(out, n, c->max, temperature, top_p);
    return n;
}

static struct sampler_choice draw(struct choosing *c)
{
    const struct sampling_params *p = c->p;
    uint32_t vocab_size = c->s->vocab_size, top_k = vocab_size;
    if (p->top_k > 0 && (uint32_t)p->top_k < vocab_size)
        top_k = (uint32_t)p->top_k;
    double temperature = (double)p->temperature;
    struct draw_key key = {p->seed, p->i_prompt, p->i_choice};
    struct draw d;
    draw_init(&d, &key, c->r->n_ids);
    draw_consider(&d, c->i_max, (double)c->max / temperature);
    if (top_k < vocab_size || p->min_p > 0.0f || p->top_p < 1.0f) {
        const struct candidate *left = c->s->candidates;
        uint32_t n = filter(c, temperature, top_k);
        for (uint32_t i = 0; i < n; i++)
            if (left[i].id != c->i_max)
                draw_consider(&d, left[i].id, (double)left[i].value / temperature);
    } else {
        draw_consider_all(&d, c->logits, vocab_size, temperature, c->i_max);
    }
    return chosen(d.id, d.best, d.second);
}

/* ---- log-probabilities of the raw logits ---- */

/* Replaces -inf and NaN by the lowest float, since JSON and messages cannot contain them. */
static float log_probability(const struct sampler_row *r, float logit)
{
    double v = (double)candidate_value(logit) - (double)candidate_value(r->best) - log(r->sum_exp);
    return v > -(double)FLT_MAX ? fminf((float)v, 0.0f) : -FLT_MAX;
}

void sampler_logprob(const struct sampler_row *r, uint32_t vocab_size, uint32_t id,
                     struct logprob_row *row)
{
    const float *raw = r->logits;
    uint32_t k = row->ids.n - 1, n = 0, rank = 1;
    uint32_t *ids = (uint32_t *)row->ids.ptr;
    float *values = (float *)row->values.ptr;
    struct candidate top[SAMPLER_MAX_LOGPROBS];
    for (uint32_t i = 0; k > 0 && i < vocab_size; i++)
        if (n < k || raw[i] > top[0].value)
            candidates_push(top, &n, k, (struct candidate){candidate_value(raw[i]), i});
    candidates_sort(top, n);
    float mine = candidate_value(raw[id]);
    for (uint32_t i = 0; i < vocab_size; i++)
        rank += raw[i] > mine;
    ids[0] = id;
    values[0] = log_probability(r, raw[id]);
    for (uint32_t i = 0; i < n; i++) {
        ids[i + 1] = top[i].id;
        values[i + 1] = log_probability(r, top[i].value);
    }
    row->ids.n = row->values.n = n + 1;
    row->chosen_rank = rank;
}

static enum status fill_row(const struct choosing *c, float *raw, uint32_t id, struct arena *arena,
                            struct logprob_row *row, struct error *err)
{
    uint32_t k = (uint32_t)c->p->n_logprobs, vocab_size = c->s->vocab_size;
    k = k < SAMPLER_MAX_LOGPROBS ? k : SAMPLER_MAX_LOGPROBS;
    k = k < vocab_size ? k : vocab_size;
    const uint32_t *ids = arena_try_alloc(arena, (k + 1) * sizeof *ids);
    const float *values = arena_try_alloc(arena, (k + 1) * sizeof *values);
    if (!ids || !values)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u log-probabilities. Free memory on this machine",
                         k + 1);
    struct sampler_row from = *c->r;
    from.logits = raw;
    *row = (struct logprob_row){.ids = {ids, k + 1}, .values = {values, k + 1}};
    sampler_logprob(&from, vocab_size, id, row);
    return STATUS_OK;
}

static struct choosing choosing_of(struct sampler *s, const struct sampler_row *r)
{
    struct choosing c = {.s = s, .r = r, .p = r->params, .logits = r->logits};
    uint32_t n_prompt = r->n_prompt < r->n_ids ? r->n_prompt : r->n_ids;
    if (r->n_ids > n_prompt)
        c.generated = (struct u32_span){r->ids + n_prompt, r->n_ids - n_prompt};
    c.penalties = penalties_of(r->params);
    return c;
}

bool sampler_needs_best_only(const struct sampler_row *r)
{
    const struct choosing c = choosing_of(NULL, r);
    return !(r->params->temperature > 0.0f) && !log_probabilities_wanted(r->params) &&
           !changes_logits(&c);
}

enum status sampler_choose(struct sampler *s, const struct sampler_row *r, struct arena *arena,
                           struct sampler_choice *out, struct logprob_row *row, struct error *err)
{
    struct choosing c = choosing_of(s, r);
    c.changed = r->mask || changes_logits(&c);
    float second = prepare(&c);
    if (c.max == -INFINITY)
        *out = (struct sampler_choice){c.i_max, INFINITY};
    else if (!(r->params->temperature > 0.0f))
        *out = chosen(c.i_max, (double)c.max, (double)second);
    else
        *out = draw(&c);
    if (!log_probabilities_wanted(r->params))
        return STATUS_OK;
    return fill_row(&c, c.changed ? s->raw : r->logits, out->id, arena, row, err);
}
