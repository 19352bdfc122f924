/* Tests gateways that share a key's rate limits through a store. The store is a few numbers in
 * memory, and its answers arrive after a delay. `request` asks a gateway to admit a request,
 * `step` moves the clock and delivers answers. Invariants: together the gateways admit no more
 * than the rate allows, and they send the store a bounded number of requests. */
#include "gateway/auth/leases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "gateway/auth/limits.h"

enum { GATEWAYS_MAX = 4, QUESTIONS_MAX = 16 };
#define MS UINT64_C(1000000)

struct question {
    struct api_key *key;
    enum quota q;
    double take, want;
    uint64_t due_ns;
};

struct world;
struct gateway {
    struct world *world;
    struct sharing sharing;
    struct api_key *key;
    struct question questions[QUESTIONS_MAX];
    uint32_t n_questions;
    uint64_t n_admitted, n_refused;
};

struct world {
    struct gateway gateways[GATEWAYS_MAX];
    uint32_t n;
    double level[QUOTA_COUNT]; /* tokens in the store's buckets, for one key */
    uint64_t filled_ns, now_ns, delay_ns;
    uint64_t n_asked;
    bool deaf; /* true = the store accepts no request for units */
};

static bool on_ask(void *ctx, struct api_key *k, enum quota q, double take, double want)
{
    struct gateway *g = ctx;
    if (g->world->deaf)
        return false;
    assert_true(g->n_questions < QUESTIONS_MAX && isfinite(take) && want >= 0);
    g->world->n_asked++;
    g->questions[g->n_questions++] =
        (struct question){k, q, take, want, g->world->now_ns + g->world->delay_ns};
    return true;
}

static void begin(struct world *w, uint32_t n, const char *limits)
{
    *w = (struct world){.n = n, .now_ns = 1000 * MS, .delay_ns = MS};
    w->filled_ns = w->now_ns;
    for (uint32_t i = 0; i < n; i++) {
        struct gateway *g = &w->gateways[i];
        g->world = w;
        g->key = mem_zalloc(sizeof *g->key);
        g->key->n_refs = 1;
        g->key->sharing = &g->sharing;
        g->sharing = (struct sharing){.ctx = g, .ask = on_ask, .n_gateways = n};
        leases_link(&g->sharing, true);
        assert_true(limits_parse(&g->key->limits, str_from(limits)));
    }
    const struct key_limits *l = &w->gateways[0].key->limits;
    w->level[QUOTA_REQUESTS] = fmax(1, l->requests_per_s);
    w->level[QUOTA_TOKENS] = l->tokens_per_min;
}

static void end(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        leases_fini(&w->gateways[i].sharing);
        assert_int_equal(w->gateways[i].key->n_refs, 1);
        api_key_drop(w->gateways[i].key);
    }
}

static void answer(struct world *w, struct gateway *g, const struct question *a)
{
    const struct key_limits *l = &g->key->limits;
    double per_s[QUOTA_COUNT] = {l->requests_per_s, l->tokens_per_min / 60};
    double size[QUOTA_COUNT] = {fmax(1, l->requests_per_s), l->tokens_per_min};
    for (enum quota q = 0; q < QUOTA_COUNT; q++)
        w->level[q] =
            fmin(size[q], w->level[q] + (double)(w->now_ns - w->filled_ns) / 1e9 * per_s[q]);
    w->filled_ns = w->now_ns;
    w->level[a->q] = fmin(size[a->q], w->level[a->q] - a->take);
    double grant = fmin(a->want, fmax(0, w->level[a->q]));
    /* the next line is the formula of quotas.c */
    grant = grant < fmin(1, size[a->q]) ? 0 : grant > 1 ? floor(grant) : grant;
    w->level[a->q] -= grant;
    leases_answer(&g->sharing, a->key, a->q, grant, w->level[a->q], w->now_ns);
}

static void step(struct world *w, uint64_t ns)
{
    uint64_t before = w->now_ns;
    w->now_ns += ns;
    for (uint32_t i = 0; i < w->n; i++) {
        struct gateway *g = &w->gateways[i];
        while (g->n_questions > 0 && g->questions[0].due_ns <= w->now_ns) {
            struct question a = g->questions[0];
            memmove(g->questions, g->questions + 1, --g->n_questions * sizeof a);
            answer(w, g, &a);
        }
        if (before / (250 * MS) != w->now_ns / (250 * MS))
            leases_tick(&g->sharing, w->now_ns);
    }
}

static bool request(struct world *w, uint32_t i)
{
    struct gateway *g = &w->gateways[i];
    struct api_error e = {0};
    bool ok = limits_admit(g->key, w->now_ns, &e);
    assert_true(ok || (e.http_status == 429 && e.retry_after_s >= 1));
    g->n_admitted += ok;
    g->n_refused += !ok;
    return ok;
}

static uint64_t admitted(const struct world *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->gateways[i].n_admitted;
    return n;
}

/* ---- many gateways, more than a key's rate ---- */

static void offer(struct world *w, struct rng *rng, double per_s, uint32_t n, uint64_t seconds)
{
    for (uint64_t end_ns = w->now_ns + seconds * 1000 * MS; w->now_ns < end_ns; step(w, MS / 2))
        for (uint32_t i = 0; i < n; i++)
            if ((double)(rng_next(rng) % 1000000) < per_s * 500)
                (void)request(w, i);
}

static void together_they_keep_to_the_rate(void **state)
{
    static const struct {
        uint32_t n;
        double rate;
        const char *limits;
        /* requests per second at each gateway, or at the first gateway only */
        double offered_per_s;
        bool first_alone;
        double least; /* smallest admitted share of the rate over the whole time */
    } cases[] = {
        {2, 20, "rate=20", 200, false, 0.9},      {4, 100, "rate=100", 300, false, 0.9},
        {2, 1, "rate=1", 20, false, 0.7},         {3, 0.2, "rate=0.2", 5, false, 0.5},
        {2, 1000, "rate=1000", 3000, false, 0.9}, {4, 50, "rate=50", 200, true, 0.9},
        {1, 10, "rate=10", 50, false, 0.9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct world w;
            struct rng rng = {seed};
            uint64_t seconds = cases[i].rate < 1 ? 120 : 20;
            begin(&w, cases[i].n, cases[i].limits);
            offer(&w, &rng, cases[i].offered_per_s, cases[i].first_alone ? 1 : w.n, seconds);
            double size = fmax(1, cases[i].rate), most = size + cases[i].rate * (double)seconds;
            double over = size / 4 + w.n, got = (double)admitted(&w);
            if (got > most + over || got < cases[i].least * cases[i].rate * (double)seconds)
                fail_msg("%s at %u gateways: %g admitted in %llu s", cases[i].limits, w.n, got,
                         (unsigned long long)seconds);
            /* A gateway asks the store at most once for each admitted request. While it has no
             * units, it asks once in 50 ms. */
            if ((double)w.n_asked > got + 20.0 * w.n * (double)seconds)
                fail_msg("%s: %llu questions for %g requests", cases[i].limits,
                         (unsigned long long)w.n_asked, got);
            end(&w);
        }
}

static void below_its_rate_nobody_is_refused(void **state)
{
    struct world w;
    struct rng rng = {7};
    begin(&w, 3, "rate=100");
    /* the loop lasts 20 s, with 60 requests/s, each at any gateway */
    for (int i = 0; i < 40000; i++) {
        if (rng_next(&rng) % 1000 < 30)
            assert_true(request(&w, (uint32_t)(rng_next(&rng) % 3)));
        step(&w, MS / 2);
    }
    assert_true(w.n_asked < admitted(&w));
    end(&w);
}

static void a_burst_at_one_is_a_whole_bucket(void **state)
{
    struct world w;
    begin(&w, 2, "rate=40");
    step(&w, 2000 * MS);
    for (int i = 0; i < 200; i++) { /* the loop lasts 100 ms */
        (void)request(&w, 0);
        step(&w, MS / 2);
    }
    assert_in_range(admitted(&w), 40, 40 + 4 + 40 / 4 + 2);
    end(&w);
}

static void tokens_are_counted_when_they_are_known(void **state)
{
    struct world w;
    begin(&w, 2, "tokens=6000"); /* the rate is 100 tokens/s */
    for (int i = 0; i < 20000; i++) {
        for (uint32_t k = 0; k < 2; k++)
            if (i % 100 == 0 && request(&w, k))
                limits_spend(w.gateways[k].key, 50, w.now_ns);
        step(&w, MS);
    }
    double tokens = 50.0 * (double)admitted(&w);
    assert_true(tokens <= 6000 + 100 * 20 + 6000 / 4.0 + 200);
    assert_true(tokens >= 6000 + 0.8 * 100 * 20);
    end(&w);
}

/* ---- unused tokens and debts ---- */

static void what_is_not_used_is_given_back(void **state)
{
    struct world w;
    begin(&w, 2, "rate=40");
    for (int i = 0; i < 20; i++) {
        assert_true(request(&w, 0));
        step(&w, 2 * MS);
    }
    assert_true(w.gateways[0].key->buckets[QUOTA_REQUESTS].level > 0);
    for (int i = 0; i < 20; i++)
        step(&w, 250 * MS);
    assert_true(w.gateways[0].key->buckets[QUOTA_REQUESTS].level == 0);
    assert_true(w.level[QUOTA_REQUESTS] == 40);
    assert_null(w.gateways[0].sharing.active);
    assert_int_equal(w.gateways[0].key->n_refs, 1);
    end(&w);
}

static void what_is_owed_is_told_of_later(void **state)
{
    struct world w;
    begin(&w, 1, "tokens=600");
    w.deaf = true;
    assert_true(request(&w, 0));
    limits_spend(w.gateways[0].key, 1000, w.now_ns);
    assert_false(request(&w, 0)); /* the credit is used up */
    step(&w, 250 * MS);
    assert_int_equal(w.n_asked, 0);
    w.deaf = false;
    step(&w, 250 * MS);
    step(&w, 250 * MS);
    assert_true(w.n_asked > 0 && w.level[QUOTA_TOKENS] < -390);
    assert_false(request(&w, 0));
    for (int i = 0; i < 200; i++)
        step(&w, 250 * MS); /* time refills 10 tokens/s */
    assert_true(request(&w, 0));
    end(&w);
}

/* ---- without the store ---- */

static void alone_each_has_its_share(void **state)
{
    struct world w;
    begin(&w, 4, "rate=40");
    for (int i = 0; i < 400; i++) {
        (void)request(&w, 0);
        step(&w, MS / 2);
    }
    uint64_t shared = admitted(&w);
    /* when the link is lost, the answer that is still expected fails first */
    leases_lost(w.gateways[0].key, QUOTA_REQUESTS);
    leases_link(&w.gateways[0].sharing, false);
    w.gateways[0].n_questions = 0;
    step(&w, 250 * MS);
    assert_null(w.gateways[0].sharing.active);
    for (int i = 0; i < 10000; i++) { /* the loop lasts 10 s */
        (void)request(&w, 0);
        step(&w, MS);
    }
    /* the bounds are a quarter of the rate and of the burst */
    assert_in_range(admitted(&w) - shared, 90, 112);
    leases_link(&w.gateways[0].sharing, true);
    /* the request is granted on credit, because the level that time had filled is gone */
    assert_true(request(&w, 0));
    assert_true(w.gateways[0].key->buckets[QUOTA_REQUESTS].level <= 0);
    end(&w);
}

static void an_answer_of_another_link_counts_for_nothing(void **state)
{
    struct world w;
    begin(&w, 1, "rate=10");
    assert_true(request(&w, 0));
    struct api_key *k = w.gateways[0].key;
    leases_link(&w.gateways[0].sharing, false);
    leases_link(&w.gateways[0].sharing, true);
    leases_answer(&w.gateways[0].sharing, k, QUOTA_REQUESTS, 1000, 1000, w.now_ns);
    assert_true(k->buckets[QUOTA_REQUESTS].level <= 0);
    end(&w);
}

/* After an operator resets a key's bucket in the store, or the store loses its data, the key is
 * admitted again. */
static void an_empty_bucket_is_looked_at_again(void **state)
{
    struct world w;
    struct gateway *g = &w.gateways[0];
    struct api_error e = {0};
    begin(&w, 1, "tokens=60");
    limits_spend(g->key, 100000, w.now_ns);
    for (int i = 0; i < 40; i++) {
        step(&w, 250 * MS);
        assert_false(request(&w, 0));
    }
    assert_false(limits_admit(g->key, w.now_ns, &e));
    /* 3600 s is the largest value in an answer to a client; the real wait is about a day */
    assert_int_equal(e.retry_after_s, 3600);
    assert_true(w.n_asked < 10);
    w.level[QUOTA_TOKENS] = 60;
    for (int i = 0; i < 40 && g->n_admitted == 0; i++) {
        step(&w, 250 * MS);
        (void)request(&w, 0);
    }
    assert_int_equal(g->n_admitted, 1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_bucket_is_looked_at_again),
        cmocka_unit_test(together_they_keep_to_the_rate),
        cmocka_unit_test(below_its_rate_nobody_is_refused),
        cmocka_unit_test(a_burst_at_one_is_a_whole_bucket),
        cmocka_unit_test(tokens_are_counted_when_they_are_known),
        cmocka_unit_test(what_is_not_used_is_given_back),
        cmocka_unit_test(what_is_owed_is_told_of_later),
        cmocka_unit_test(alone_each_has_its_share),
        cmocka_unit_test(an_answer_of_another_link_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
