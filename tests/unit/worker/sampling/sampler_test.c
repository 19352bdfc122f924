/* Tests the sampler against a plain one, which is written here by the rules of sampler.h and
 * docs/develop/protocol.md and sorts all candidates. Random calls compare the two samplers.
 * Other tests have known answers, hostile parameters and masks of grammars. Invariants: the
 * chosen id is in the vocabulary and allowed, and a bad call leaves no state behind for the next
 * call. All tests run on one thread. */
#include "worker/sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { VOCAB = 97, MAX_IDS = 40 };

static const struct sampling_params greedy = {
    .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .n_prompt_logprobs = -1};

/* `call` is a call of the sampler with all its input. */
struct call {
    struct sampling_params params;
    uint32_t vocab, ids[MAX_IDS], n_ids, n_prompt;
    float logits[VOCAB];
};

static struct sampler_row make_row(const struct call *c, float *work)
{
    struct sampler_row r = {.params = &c->params,
                            .ids = c->ids,
                            .n_ids = c->n_ids,
                            .n_prompt = c->n_prompt,
                            .logits = work,
                            .best = -INFINITY,
                            .second = -INFINITY};
    memcpy(work, c->logits, c->vocab * sizeof *work);
    for (uint32_t i = 0; i < c->vocab; i++) {
        float v = isnan(work[i]) ? -INFINITY : work[i];
        if (v > r.best) {
            r.second = r.best;
            r.best = v;
            r.best_id = i;
        } else if (v > r.second) {
            r.second = v;
        }
    }
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!isnan(work[i]))
            r.sum_exp += exp((double)work[i] - (double)r.best);
    return r;
}

static struct sampler_choice choose(const struct call *c)
{
    /* samplers by size of vocabulary, kept between calls as in a worker */
    static struct sampler *s[VOCAB + 1];
    if (!s[c->vocab])
        s[c->vocab] = sampler_new(c->vocab);
    float work[VOCAB];
    struct sampler_row r = make_row(c, work);
    struct sampler_choice out = {.id = UINT32_MAX};
    struct logprob_row row;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(sampler_choose(s[c->vocab], &r, &arena, &out, &row, NULL), STATUS_OK);
    arena_fini(&arena);
    assert_true(out.id < c->vocab);
    assert_true(out.gap > 0);
    r = make_row(c, work);
    if (sampler_needs_best_only(&r)) {
        struct sampler_choice same = {.id = UINT32_MAX};
        r.logits = NULL;
        assert_int_equal(sampler_choose(s[c->vocab], &r, NULL, &same, NULL, NULL), STATUS_OK);
        assert_int_equal(same.id, out.id);
        assert_memory_equal(&same.gap, &out.gap, sizeof out.gap);
    }
    return out;
}

/* ---- the plain sampler ---- */

static uint32_t count(const uint32_t *ids, uint32_t n, uint32_t id)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        k += ids[i] == id;
    return k;
}

static bool in(struct u32_span s, uint32_t id)
{
    return count(s.ptr, s.n, id) > 0;
}

static bool plain_is_bad_word(const struct call *c, uint32_t id)
{
    const uint32_t *w = c->params.bad_words.ptr, n_out = c->n_ids - c->n_prompt;
    for (uint32_t i = 0, n = 0; i < c->params.bad_words.n; i++, n++) {
        if (w[i] != UINT32_MAX)
            continue;
        bool match = n > 0 && w[i - 1] == id && n - 1 <= n_out;
        for (uint32_t k = 1; match && k < n; k++)
            match = c->ids[c->n_ids - k] == w[i - 1 - k];
        if (match)
            return true;
        n = UINT32_MAX;
    }
    return false;
}

static double plain_logit(const struct call *c, uint32_t id)
{
    const struct sampling_params *p = &c->params;
    uint32_t n_out = c->n_ids - c->n_prompt;
    uint32_t n = count(c->ids + c->n_prompt, n_out, id);
    float v = c->logits[id];
    if (p->allowed_ids.n > 0 && !in(p->allowed_ids, id))
        return -(double)INFINITY;
    if (plain_is_bad_word(c, id))
        return -(double)INFINITY;
    if (n_out < p->min_tokens && (in(p->eos_ids, id) || in(p->stop_ids, id)))
        return -(double)INFINITY;
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].token == id)
            v += p->logit_bias[i].bias;
    if (count(c->ids, c->n_ids, id) > 0)
        v = v > 0 ? v / p->repetition_penalty : v * p->repetition_penalty;
    if (n > 0)
        v -= p->frequency_penalty * (float)n + p->presence_penalty;
    return (double)v;
}

struct entry {
    double value, p;
    uint32_t id;
};

static int by_value(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Collects the filtered candidates and sorts them. Returns their number. */
static uint32_t plain_filter(const struct call *c, struct entry *e)
{
    const struct sampling_params *p = &c->params;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++) {
        double v = plain_logit(c, i);
        if (v > -(double)INFINITY)
            e[n++] = (struct entry){v / (double)p->temperature, 0, i};
    }
    qsort(e, n, sizeof *e, by_value);
    while (n > 1 && p->min_p > 0 && exp(e[n - 1].value - e[0].value) < (double)p->min_p)
        n--;
    if (p->top_k > 0 && (uint32_t)p->top_k < n)
        n = (uint32_t)p->top_k;
    if (p->top_p < 1) {
        double total = 0, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            total += e[i].p = exp(e[i].value - e[0].value);
        uint32_t kept = 0;
        while (kept < n && (kept == 0 || sum < (double)p->top_p * total))
            sum += e[kept++].p;
        n = kept;
    }
    return n;
}

static struct sampler_choice plain_choose(const struct call *c)
{
    struct entry e[VOCAB];
    const struct sampling_params *p = &c->params;
    struct draw_key key = {p->seed, p->i_prompt, p->i_choice};
    struct call copy = *c;
    if (p->temperature == 0) {
        copy.params.temperature = 1;
        copy.params.top_k = 0;
        copy.params.top_p = 1;
        copy.params.min_p = 0;
    }
    uint32_t n = plain_filter(&copy, e);
    for (uint32_t i = 0; i < n && p->temperature > 0; i++)
        e[i].value -= log(-log(draw_uniform(&key, c->n_ids, e[i].id)));
    qsort(e, n, sizeof *e, by_value);
    return (struct sampler_choice){e[0].id, n > 1 ? (float)(e[0].value - e[1].value) : INFINITY};
}

/* ---- random calls: each feature is on with probability 1/2 ---- */

struct lists {
    uint32_t eos[2], stop[2], allowed[40], bad[12];
    struct logit_bias bias[3];
};

static bool coin(struct rng *rng)
{
    return rng_next(rng) >> 63;
}

static void random_lists(struct rng *rng, struct call *c, struct lists *l)
{
    struct sampling_params *p = &c->params;
    for (int i = 0; i < 2; i++) {
        l->eos[i] = (uint32_t)rng_below(rng, VOCAB);
        l->stop[i] = (uint32_t)rng_below(rng, VOCAB);
    }
    p->eos_ids = (struct u32_span){l->eos, 2};
    p->stop_ids = (struct u32_span){l->stop, 2};
    p->min_tokens = (uint32_t)rng_below(rng, 20);
    if (coin(rng)) {
        for (int i = 0; i < 40; i++)
            l->allowed[i] = (uint32_t)rng_below(rng, VOCAB + 5);
        p->allowed_ids = (struct u32_span){l->allowed, 40};
    }
    if (coin(rng)) { /* the call has bad words of one id, of two ids that match, and of three */
        uint32_t last = c->n_ids > c->n_prompt ? c->ids[c->n_ids - 1] : 3, x = UINT32_MAX;
        uint32_t bad[] = {(uint32_t)rng_below(rng, VOCAB),
                          x,
                          last,
                          (uint32_t)rng_below(rng, VOCAB),
                          x,
                          7,
                          last,
                          4,
                          x};
        memcpy(l->bad, bad, sizeof bad);
        p->bad_words = (struct u32_span){l->bad, sizeof bad / sizeof *bad};
    }
    if (coin(rng)) {
        for (int i = 0; i < 3; i++)
            l->bias[i] = (struct logit_bias){(uint32_t)(i * 31 + rng_below(rng, 31)),
                                             (float)rng_below(rng, 9) - 4.0f};
        p->logit_bias = l->bias;
        p->n_logit_bias = 3;
    }
}

static void random_call(struct rng *rng, struct call *c, struct lists *l)
{
    *c = (struct call){.params = greedy, .vocab = VOCAB};
    struct sampling_params *p = &c->params;
    c->n_ids = 1 + (uint32_t)rng_below(rng, MAX_IDS);
    c->n_prompt = 1 + (uint32_t)rng_below(rng, c->n_ids);
    for (uint32_t i = 0; i < c->n_ids; i++)
        c->ids[i] = (uint32_t)rng_below(rng, 12);
    float spread = coin(rng) ? 8.0f : 40.0f;
    for (uint32_t i = 0; i < VOCAB; i++)
        c->logits[i] = spread * ((float)rng_below(rng, 1u << 20) / (float)(1 << 20) - 0.5f);
    static const float temperatures[] = {0, 0.3f, 1, 2, 10};
    p->temperature = temperatures[rng_below(rng, 5)];
    p->seed = rng_next(rng);
    p->i_prompt = (uint32_t)rng_below(rng, 3);
    p->i_choice = (uint32_t)rng_below(rng, 3);
    if (coin(rng))
        p->top_k = (int32_t)rng_below(rng, 110);
    if (coin(rng))
        p->top_p = 0.01f + (float)rng_below(rng, 98) / 100.0f;
    if (coin(rng))
        p->min_p = (float)rng_below(rng, 100) / 100.0f;
    if (coin(rng))
        p->repetition_penalty = 0.5f + (float)rng_below(rng, 100) / 50.0f;
    if (coin(rng))
        p->frequency_penalty = (float)rng_below(rng, 40) / 10.0f - 2.0f;
    if (coin(rng))
        p->presence_penalty = (float)rng_below(rng, 40) / 10.0f - 2.0f;
    random_lists(rng, c, l);
}

static void as_the_plain_one(void **state)
{
    struct rng rng = {4711};
    for (int i = 0; i < 20000; i++) {
        struct call c;
        struct lists l;
        random_call(&rng, &c, &l);
        struct sampler_choice want = plain_choose(&c), got = choose(&c);
        if (got.id != want.id)
            print_message("round %d\n", i);
        assert_int_equal(got.id, want.id);
        if (isinf(want.gap))
            assert_true(isinf(got.gap));
        else
            assert_true(fabsf(got.gap - want.gap) <= 1e-5f * (1 + want.gap));
    }
}

/* ---- known answers ---- */

static const struct logit_bias up[] = {{5, 100}}, down[] = {{2, -100}};
static const uint32_t ids_1_6[] = {1, 6}, ids_2[] = {2}, word_2[] = {2, UINT32_MAX};
static const uint32_t word_4_2[] = {4, 2, UINT32_MAX}, word_0_2[] = {0, 2, UINT32_MAX};

/* Logits are 1 4 5 5 2 0 4.5 -1, and ids are 0 1 2 | 2 4. Id 2 has the best logit and was seen
 * twice, and id 3 is equally good. */
#define CASE(nm, id_, gap_, ...)                                                                   \
    {                                                                                              \
        nm, {__VA_ARGS__}, id_, gap_                                                               \
    }
static const struct {
    const char *name;
    struct sampling_params params;
    uint32_t id;
    float gap;
} known[] = {
    CASE("the lowest id among equals", 2, FLT_MIN, .temperature = 0),
    CASE("greedy looks at no filter", 2, FLT_MIN, .top_k = 1, .top_p = 0.1f, .min_p = 1),
    CASE("bias up", 5, 95, .logit_bias = up, .n_logit_bias = 1),
    CASE("bias down", 3, 0.5f, .logit_bias = down, .n_logit_bias = 1),
    CASE("allowed", 6, 0.5f, .allowed_ids = {ids_1_6, 2}),
    CASE("one allowed", 2, INFINITY, .allowed_ids = {ids_2, 1}),
    CASE("bad word", 3, 0.5f, .bad_words = {word_2, 2}),
    CASE("bad words after a match", 3, 0.5f, .bad_words = {word_4_2, 3}),
    CASE("bad words without a match", 2, FLT_MIN, .bad_words = {word_0_2, 3}),
    CASE("min_tokens bans EOS", 3, 0.5f, .min_tokens = 3, .eos_ids = {ids_2, 1}),
    CASE("min_tokens bans stop ids", 3, 0.5f, .min_tokens = 3, .stop_ids = {ids_2, 1}),
    CASE("min_tokens reached", 2, FLT_MIN, .min_tokens = 2, .eos_ids = {ids_2, 1}),
    CASE("presence", 3, 0.5f, .presence_penalty = 1),
    CASE("frequency", 3, 0.5f, .frequency_penalty = 1),
    CASE("repetition", 3, 0.5f, .repetition_penalty = 2),
    CASE("repetition below 1 favours what was seen", 2, 2, .repetition_penalty = 0.5f),
    CASE("tiny temperature, by noise", 2, -1, .temperature = 1e-6f, .seed = 3),
    CASE("top_k 1", 2, INFINITY, .temperature = 5, .top_k = 1, .seed = 9),
    CASE("a small top_p", 2, INFINITY, .temperature = 5, .top_p = 0.01f, .seed = 9),
};

static void known_cases(void **state)
{
    static const float logits[8] = {1, 4, 5, 5, 2, 0, 4.5f, -1};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct call c = {.params = known[i].params,
                         .vocab = 8,
                         .ids = {0, 1, 2, 2, 4},
                         .n_ids = 5,
                         .n_prompt = 3};
        c.params.n_logprobs = -1;
        if (c.params.top_p == 0) /* top_p is not set in this case */
            c.params.top_p = 1;
        if (c.params.repetition_penalty == 0)
            c.params.repetition_penalty = 1;
        memcpy(c.logits, logits, sizeof logits);
        struct sampler_choice got = choose(&c);
        bool either = known[i].gap < 0 && got.id == 3; /* ids 2 and 3 are equal, so noise decides */
        if (got.id != known[i].id && !either)
            fail_msg("%s: chose %u", known[i].name, got.id);
        if (known[i].gap > 0 && got.gap != known[i].gap)
            fail_msg("%s: gap %g", known[i].name, (double)got.gap);
    }
}

/* Four equal candidates have a quarter of the probability each. top_p 0.5 keeps exactly the two
 * with the lowest ids. */
static void top_p_takes_the_lowest_of_equals(void **state)
{
    struct call c = {.params = greedy, .vocab = 4, .n_ids = 1, .n_prompt = 1};
    c.params.temperature = 1;
    c.params.top_p = 0.5f;
    bool seen[4] = {false};
    for (uint32_t i = 0; i < 100; i++) {
        c.params.seed = i;
        seen[choose(&c).id] = true;
    }
    assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
}

static void draws_depend_on_their_place_only(void **state)
{
    struct call c = {.params = greedy, .vocab = VOCAB, .ids = {1, 2, 3}, .n_ids = 3, .n_prompt = 3};
    c.params.temperature = 1;
    uint32_t first = choose(&c).id, differ[3] = {0};
    for (uint32_t i = 1; i <= 20; i++) {
        struct call choice = c, position = c, seed = c, replay = c;
        choice.params.i_choice = i;
        position.n_ids = position.n_prompt = 3 + i;
        seed.params.seed = i;
        replay.n_prompt = 1; /* the ids are the same, but some of them count as generated */
        differ[0] += choose(&choice).id != first;
        differ[1] += choose(&position).id != first;
        differ[2] += choose(&seed).id != first;
        assert_int_equal(choose(&replay).id, first);
    }
    for (int i = 0; i < 3; i++)
        assert_true(differ[i] >= 17); /* the 20 draws are from 97 equal candidates */
}

/* ---- log-probabilities ---- */

static void logprobs_are_of_the_raw_logits(void **state)
{
    struct call c = {.params = greedy, .vocab = 6, .n_ids = 1, .n_prompt = 1};
    static const float logits[6] = {0, 3, 1, 3, -INFINITY, 2};
    memcpy(c.logits, logits, sizeof logits);
    static const struct logit_bias bias[] = {{2, 50}};
    c.params.logit_bias = bias;
    c.params.n_logit_bias = 1;
    static const uint32_t want[] = {2, 1, 3, 5, 2, 0, 4};
    struct sampler *s = sampler_new(6);
    for (int32_t k = 0; k <= 70; k++) {
        c.params.n_logprobs = k;
        float work[6];
        struct sampler_row r = make_row(&c, work);
        struct arena arena;
        struct logprob_row row;
        struct sampler_choice out;
        arena_init(&arena, 0);
        assert_int_equal(sampler_choose(s, &r, &arena, &out, &row, NULL), STATUS_OK);
        uint32_t n = k < 6 ? (uint32_t)k + 1 : 7;
        assert_int_equal(out.id, 2);
        assert_int_equal(row.ids.n, n);
        assert_int_equal(row.values.n, n);
        assert_int_equal(row.chosen_rank, 4);
        assert_memory_equal(row.ids.ptr, want, n * sizeof *want);
        double total = log(exp(0) + 2 * exp(3) + exp(1) + exp(2));
        for (uint32_t i = 0; i < n; i++)
            if (row.ids.ptr[i] != 4)
                assert_true(fabs((double)row.values.ptr[i] - (double)logits[row.ids.ptr[i]] +
                                 total) < 1e-6);
            else
                assert_true(row.values.ptr[i] == -FLT_MAX);
        arena_fini(&arena);
    }
    sampler_free(s);
}

static void no_room_for_logprobs(void **state)
{
    struct call c = {.params = greedy, .vocab = 6, .n_ids = 1, .n_prompt = 1};
    c.params.n_logprobs = 5;
    float work[6];
    struct sampler_row r = make_row(&c, work);
    struct sampler *s = sampler_new(6);
    struct arena arena;
    struct sampler_choice out;
    struct logprob_row row;
    struct error err;
    arena_init(&arena, 16);
    assert_int_equal(sampler_choose(s, &r, &arena, &out, &row, &err), STATUS_NO_MEMORY);
    arena_fini(&arena);
    sampler_free(s);
}

/* ---- hostile values: the result is in the vocabulary, and the next call works as usual ---- */

static void hostile(struct rng *rng, struct call *c, struct lists *l)
{
    static const float bad[] = {NAN,   INFINITY, -INFINITY, -1,   FLT_MAX, FLT_MIN / 4,
                                1e-7f, 0,        1,         -0.f, -FLT_MAX};
    struct sampling_params *p = &c->params;
    float *fields[] = {
        &p->temperature,       &p->top_p, &p->min_p, &p->presence_penalty, &p->frequency_penalty,
        &p->repetition_penalty};
    for (int i = 0; i < 6; i++)
        if (coin(rng))
            *fields[i] = bad[rng_below(rng, 11)];
    if (coin(rng))
        p->top_k = coin(rng) ? INT32_MAX : INT32_MIN;
    for (int i = 0; i < 3; i++)
        l->bias[i] = (struct logit_bias){i ? (uint32_t)rng_next(rng) : 3, bad[rng_below(rng, 11)]};
    for (int i = 0; i < 40; i++)
        l->allowed[i] = coin(rng) ? (uint32_t)rng_next(rng) : l->allowed[i];
    for (int i = 0; i < 12; i++) /* the words are empty, and the last word has no end */
        l->bad[i] = coin(rng) ? UINT32_MAX : (uint32_t)rng_below(rng, 12);
    if (p->bad_words.n > 0)
        p->bad_words.n = 12;
    p->min_tokens = coin(rng) ? UINT32_MAX : p->min_tokens;
    p->n_logprobs = coin(rng) ? INT32_MAX : -5;
    for (int i = 0; i < 10; i++)
        c->logits[rng_below(rng, VOCAB)] = bad[rng_below(rng, 11)];
    for (uint32_t i = 0; i < c->n_ids; i++)
        c->ids[i] = coin(rng) ? UINT32_MAX - i : c->ids[i];
    if (coin(rng))
        c->n_prompt = UINT32_MAX;
}

static void hostile_values(void **state)
{
    struct rng rng = {8};
    struct call good;
    struct lists good_lists;
    random_call(&rng, &good, &good_lists);
    good.params.repetition_penalty = 1.3f;
    uint32_t want = plain_choose(&good).id;
    for (int i = 0; i < 5000; i++) {
        struct call c;
        struct lists l = {.eos = {0}};
        random_call(&rng, &c, &l);
        hostile(&rng, &c, &l);
        struct sampler_choice a = choose(&c), b = choose(&c);
        assert_true(a.id == b.id && a.gap == b.gap);
        assert_int_equal(choose(&good).id, want);
    }
}

static void nothing_may_be_chosen(void **state)
{
    static const uint32_t beyond[] = {VOCAB, UINT32_MAX};
    struct call c = {.params = greedy, .vocab = VOCAB, .n_ids = 1, .n_prompt = 1};
    c.logits[40] = 2;
    for (int t = 0; t < 2; t++) {
        c.params.temperature = (float)t;
        c.params.allowed_ids = (struct u32_span){beyond, 2};
        assert_int_equal(choose(&c).id, 40);
        assert_true(isinf(choose(&c).gap));
        c.params.allowed_ids.n = 0;
        struct call nan = c;
        for (int i = 0; i < VOCAB; i++)
            nan.logits[i] = i % 2 ? NAN : -INFINITY;
        assert_int_equal(choose(&nan).id, 0);
    }
}

/* ---- a grammar's mask ---- */

static struct sampler_choice choose_masked(const struct call *c, const uint32_t *mask)
{
    struct sampler *s = sampler_new(c->vocab);
    float work[VOCAB];
    struct sampler_row r = make_row(c, work);
    struct sampler_choice out = {.id = UINT32_MAX};
    r.mask = mask;
    assert_int_equal(sampler_choose(s, &r, NULL, &out, NULL, NULL), STATUS_OK);
    sampler_free(s);
    return out;
}

/* The chosen id is in the mask for all values of other parameters. */
static void masks_are_kept(void **state)
{
    static const uint32_t eos[] = {5};
    static const struct logit_bias bias[] = {{3, 100}, {6, -INFINITY}};
    uint32_t mask[(VOCAB + 31) / 32] = {1u << 5 | 1u << 6};
    struct call c = {.params = greedy, .vocab = 8, .ids = {1}, .n_ids = 1, .n_prompt = 1};
    for (uint32_t i = 0; i < c.vocab; i++)
        c.logits[i] = (float)(i == 3 ? 9 : i == 6 ? 2 : 1);
    assert_int_equal(choose_masked(&c, mask).id, 6); /* id 3 has the best logit, but is masked */
    for (uint32_t seed = 0; seed < 50; seed++) {
        c.params.temperature = 5;
        c.params.seed = seed;
        uint32_t id = choose_masked(&c, mask).id;
        assert_true(id == 5 || id == 6);
    }
    c.params = greedy;
    c.params.logit_bias = bias;
    c.params.n_logit_bias = 2;
    assert_int_equal(choose_masked(&c, mask).id, 5);
    c.params.eos_ids = (struct u32_span){eos, 1};
    c.params.min_tokens = 4; /* the mask takes precedence: id 5 is the only one left */
    assert_int_equal(choose_masked(&c, mask).id, 5);
}

static void who_needs_the_best_only(void **state)
{
    static const uint32_t some[] = {3};
    static const struct logit_bias bias = {3, 1};
    struct call plain = {
        .params = greedy, .vocab = VOCAB, .ids = {5, 6}, .n_ids = 2, .n_prompt = 1};
    struct call not [8];
    float work[VOCAB];
    for (int i = 0; i < 8; i++)
        not [i] = plain;
    not [0].params.temperature = 0.5f;
    not [1].params.n_logprobs = 0;
    not [2].params.allowed_ids = (struct u32_span){some, 1};
    not [3].params.bad_words = (struct u32_span){some, 1};
    not [4].params.min_tokens = 2; /* only one token exists so far */
    not [5].params.logit_bias = &bias;
    not [5].params.n_logit_bias = 1;
    not [6].params.repetition_penalty = 1.1f;
    not [7].params.presence_penalty = 0.1f;
    struct sampler_row r = make_row(&plain, work);
    assert_true(sampler_needs_best_only(&r));
    plain.params.min_tokens = 1;
    plain.params.top_p = 0.5f; /* top_p has no effect without a temperature */
    r = make_row(&plain, work);
    assert_true(sampler_needs_best_only(&r));
    for (int i = 0; i < 8; i++) {
        r = make_row(&not [i], work);
        assert_false(sampler_needs_best_only(&r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_kept),
        cmocka_unit_test(as_the_plain_one),
        cmocka_unit_test(known_cases),
        cmocka_unit_test(top_p_takes_the_lowest_of_equals),
        cmocka_unit_test(draws_depend_on_their_place_only),
        cmocka_unit_test(logprobs_are_of_the_raw_logits),
        cmocka_unit_test(no_room_for_logprobs),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(nothing_may_be_chosen),
        cmocka_unit_test(who_needs_the_best_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
