/* Compares the selection of candidates from a whole vocabulary with the same selection from a
 * list. The two selections keep the same candidates for all logits. No block with a relevant
 * candidate is skipped. */
#include "worker/sampling/candidates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "worker/sampling/draw.h"
#include "worker/sampling/philox.h"
#include "worker/sampling/sweep.h"

enum { MOST = 3000, N_ROUNDS = 400 };

static float uniform(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-24f;
}

/* Fills in logits of one of several kinds: close together, far apart, a few very large ones,
 * many equal ones, some NaN. */
static void fill(float *logits, uint32_t n, uint32_t kind, struct rng *r)
{
    for (uint32_t i = 0; i < n; i++) {
        float u = uniform(r);
        logits[i] = kind == 0   ? u
                    : kind == 1 ? 80 * u - 60
                    : kind == 2 ? (u > 0.99f ? 20 + u : -5 * u)
                    : kind == 3 ? (float)(int)(4 * u)
                    : kind == 4 ? 1e30f * (u - 0.5f)
                                : (u < 0.1f    ? NAN
                                   : u < 0.2f  ? -INFINITY
                                   : u < 0.21f ? INFINITY
                                               : u);
    }
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void test_top_p_of_all(void **state)
{
    static struct candidate want[MOST], got[MOST];
    static float logits[MOST];
    struct rng r = {11};
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&r, round % 4 ? 200 : MOST), n_want = 0;
        double temperature = 0.05 + 2 * (double)uniform(&r), top_p = (double)uniform(&r);
        float max = -INFINITY;
        fill(logits, n, round % 6, &r);
        for (uint32_t i = 0; i < n; i++) {
            struct candidate it = {candidate_value(logits[i]), i};
            if (it.value > -INFINITY)
                want[n_want++] = it;
            max = it.value > max ? it.value : max;
        }
        if (n_want == 0)
            continue;
        n_want = candidates_top_p(want, n_want, max, temperature, top_p);
        uint32_t n_got = candidates_top_p_of(logits, n, max, temperature, top_p, got);
        assert_int_equal(n_got, n_want);
        qsort(want, n_want, sizeof *want, by_id);
        qsort(got, n_got, sizeof *got, by_id);
        for (uint32_t i = 0; i < n_got; i++)
            assert_int_equal(got[i].id, want[i].id);
    }
}

/* The selection is the smallest set of the best candidates with the share `top_p`, as found by
 * sorting. */
static void test_share(void **state)
{
    static struct candidate all[MOST], got[MOST];
    static float logits[MOST];
    struct rng r = {12};
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t n = 100 + (uint32_t)rng_below(&r, MOST - 100), n_want = 0;
        double top_p = 0.05 + 0.9 * (double)uniform(&r), total = 0, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = 25 * uniform(&r);
            all[i] = (struct candidate){logits[i], i};
        }
        candidates_sort(all, n);
        for (uint32_t i = 0; i < n; i++)
            total += exp((double)all[i].value - (double)all[0].value);
        while (sum < top_p * total)
            sum += exp((double)all[n_want++].value - (double)all[0].value);
        assert_int_equal(candidates_top_p_of(logits, n, all[0].value, 1.0, top_p, got), n_want);
    }
}

static void test_nothing_is_passed_over(void **state)
{
    struct rng r = {13};
    float logits[SWEEP_BLOCK];
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&r, SWEEP_BLOCK);
        fill(logits, n, round % 6, &r);
        double limit = (double)logits[rng_below(&r, n)] * (round % 3 ? 1 : 1 + 1e-9);
        bool wanted = false;
        for (uint32_t i = 0; i < n; i++)
            wanted = wanted || (double)candidate_value(logits[i]) >= limit;
        assert_true(!wanted || sweep_reaches(logits, n, limit));
    }
    memset(logits, 0, sizeof logits);
    assert_false(sweep_reaches(logits, SWEEP_BLOCK, 1e-3));
    assert_true(sweep_reaches(logits, SWEEP_BLOCK, -1e-3));
    assert_true(sweep_reaches(logits, SWEEP_BLOCK, -(double)INFINITY));
}

static void test_exps(void **state)
{
    struct rng r = {14};
    for (uint32_t round = 0; round < 2000; round++) {
        double d[SWEEP_BLOCK], p[SWEEP_BLOCK];
        for (uint32_t i = 0; i < SWEEP_BLOCK; i++)
            p[i] = d[i] = (double)uniform(&r) * (round % 2 ? 700 : 40);
        p[0] = d[0] = 0;
        sweep_exps(p);
        for (uint32_t i = 0; i < SWEEP_BLOCK; i++)
            assert_true(fabs(p[i] - exp(-d[i])) <= 4.5e-16 * exp(-d[i]));
        assert_true(p[0] == 1);
    }
    double far[SWEEP_BLOCK] = {(double)INFINITY, 1e300, 705.1};
    sweep_exps(far);
    assert_true(far[0] < 1e-305 && far[1] < 1e-305 && far[2] < 1e-305);
}

static void test_most_bits(void **state)
{
    struct rng r = {15};
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t key[2], first[4], most = 0;
        for (uint32_t i = 0; i < 4; i++)
            key[i % 2] = (uint32_t)rng_next(&r), first[i] = (uint32_t)rng_next(&r);
        for (uint32_t i = 0; i < SWEEP_BLOCK / 4; i++) {
            uint32_t c[4] = {first[0] + i, first[1], first[2], first[3]};
            philox4x32_10(c, key);
            for (uint32_t k = 0; k < 4; k++)
                most = c[k] > most ? c[k] : most;
        }
        assert_int_equal(sweep_most_bits(key, first), most);
    }
}

/* A draw from the whole vocabulary gives the same token as visiting its ids one by one. */
static void test_draw_of_all(void **state)
{
    static float logits[MOST];
    struct rng r = {16};
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&r, round % 4 ? 500 : MOST);
        double temperature = 0.05 + 2 * (double)uniform(&r);
        struct draw_key key = {rng_next(&r), (uint32_t)rng_next(&r), (uint32_t)rng_next(&r)};
        struct draw one, all;
        uint32_t best = 0;
        fill(logits, n, round % 6, &r);
        for (uint32_t i = 0; i < n; i++)
            best = candidate_value(logits[i]) > candidate_value(logits[best]) ? i : best;
        if (candidate_value(logits[best]) == -INFINITY)
            continue;
        draw_init(&one, &key, round);
        draw_init(&all, &key, round);
        draw_consider(&all, best, (double)candidate_value(logits[best]) / temperature);
        for (uint32_t i = 0; i < n; i++)
            if (candidate_value(logits[i]) > -INFINITY)
                draw_consider(&one, i, (double)candidate_value(logits[i]) / temperature);
        draw_consider_all(&all, logits, n, temperature, best);
        assert_int_equal(all.id, one.id);
        assert_true(all.best == one.best && all.second == one.second);
    }
}

/* Runs all tests with each vector width. A width that this CPU lacks falls back to the next
 * narrower one. */
static void test_all(void **state)
{
    for (enum sweep_width w = SWEEP_PLAIN; w <= SWEEP_AVX512; w++) {
        sweep_limit(w);
        test_top_p_of_all(state);
        test_share(state);
        test_nothing_is_passed_over(state);
        test_exps(state);
        test_most_bits(state);
        test_draw_of_all(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
