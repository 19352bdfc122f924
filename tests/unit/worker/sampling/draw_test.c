/* Tests random draws of the sampler: Philox against its published test vectors, draws that
 * depend only on their place, and the choice of a token by noise. The choice is the same in any
 * order of candidates, and its frequencies are softmax's. */
#include "worker/sampling/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "worker/sampling/philox.h"

static void known_answers(void **state)
{
    /* The test vectors are from kat_vectors of Random123, by the authors of Philox: "philox4x32
     * 10". */
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t c[4];
        memcpy(c, cases[i].counter, sizeof c);
        philox4x32_10(c, cases[i].key);
        assert_memory_equal(c, cases[i].want, sizeof c);
    }
}

/* The layout in docs/develop/protocol.md, "Sampling", is a promise to other implementations. */
static void layout(void **state)
{
    struct draw_key k = {
        .seed = 0x299f31d0a4093822, .i_prompt = 0x13198a2e, .i_choice = 0x03707344};
    /* Key and counter are those of the third test vector: i / 4, position, prompt, choice. */
    assert_true(draw_uniform(&k, 0x85a308d3, 3) != draw_uniform(&k, 0x85a308d3, 2));
    uint32_t c[4] = {77 / 4, 0x85a308d3, 0x13198a2e, 0x03707344};
    uint32_t key[2] = {0xa4093822, 0x299f31d0};
    philox4x32_10(c, key);
    assert_true(draw_uniform(&k, 0x85a308d3, 77) == ((double)c[1] + 0.5) / 4294967296.0);
}

static void different_places_differ(void **state)
{
    struct draw_key k = {.seed = 5, .i_prompt = 1, .i_choice = 2};
    double here = draw_uniform(&k, 9, 100);
    assert_true(here > 0 && here < 1);
    assert_true(here == draw_uniform(&k, 9, 100));
    assert_true(here != draw_uniform(&k, 10, 100));
    assert_true(here != draw_uniform(&k, 9, 101));
    struct draw_key others[] = {{6, 1, 2}, {5 + (1ull << 32), 1, 2}, {5, 2, 2}, {5, 1, 3}};
    for (size_t i = 0; i < 4; i++)
        assert_true(here != draw_uniform(&others[i], 9, 100));
}

static double score(const struct draw_key *k, uint32_t position, uint32_t id, double value)
{
    return value - log(-log(draw_uniform(k, position, id)));
}

/* Each order of visiting gives the result of the plain definition, bit for bit. */
static void order_does_not_matter(void **state)
{
    enum { N = 300 };
    struct rng rng = {11};
    for (uint32_t round = 0; round < 300; round++) {
        struct draw_key k = {rng_next(&rng), round, 1};
        double values[N], best = -(double)INFINITY, second = best;
        uint32_t order[N], want = 0;
        double spread = round % 3 == 0 ? 1.0 : round % 3 == 1 ? 30.0 : 1e6;
        for (uint32_t i = 0; i < N; i++) {
            values[i] = spread * ((double)rng_below(&rng, 1000) / 1000.0);
            order[i] = i;
            double s = score(&k, round, i, values[i]);
            if (s > best) {
                second = best;
                best = s;
                want = i;
            } else if (s > second) {
                second = s;
            }
        }
        for (uint32_t shuffle = 0; shuffle < 4; shuffle++) {
            struct draw d;
            draw_init(&d, &k, round);
            for (uint32_t i = 0; i < N; i++)
                draw_consider(&d, order[i], values[order[i]]);
            assert_int_equal(d.id, want);
            assert_true(d.best == best && d.second == second);
            for (uint32_t i = N - 1; i > 0; i--) {
                uint32_t j = (uint32_t)rng_below(&rng, i + 1), t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
        }
    }
}

/* When values are so large that rounding removes the noise, their scores are equal. The lowest
 * id is then chosen. */
static void equals_in_any_order(void **state)
{
    static const uint32_t orders[3][3] = {{4, 8, 9}, {9, 8, 4}, {8, 4, 9}};
    struct draw_key k = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        struct draw d;
        draw_init(&d, &k, 0);
        for (int j = 0; j < 3; j++)
            draw_consider(&d, orders[i][j], 1e30);
        assert_int_equal(d.id, 4);
        assert_true(d.second == d.best);
    }
}

/* The frequencies pass Pearson's chi-square test over eight tokens. 24.32 is the 0.999 quantile
 * for 7 degrees of freedom. The draws are fixed, so the result never changes. */
static void frequencies_are_softmax(void **state)
{
    static const double values[8] = {2.0, 1.5, 1.0, 0.0, -0.5, 0.25, -1.0, -2.0};
    enum { DRAWS = 200000 };
    struct draw_key k = {.seed = 2026, .i_prompt = 0, .i_choice = 0};
    uint32_t counts[8] = {0};
    double total = 0, chi = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct draw d;
        draw_init(&d, &k, i);
        for (uint32_t id = 0; id < 8; id++)
            draw_consider(&d, id, values[id]);
        counts[d.id]++;
    }
    for (int i = 0; i < 8; i++)
        total += exp(values[i]);
    for (int i = 0; i < 8; i++) {
        double want = DRAWS * exp(values[i]) / total;
        chi += (counts[i] - want) * (counts[i] - want) / want;
    }
    assert_true(chi < 24.32);
    assert_true(chi > 0.3); /* a fit better than chance would be suspicious */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),           cmocka_unit_test(layout),
        cmocka_unit_test(different_places_differ), cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(equals_in_any_order),     cmocka_unit_test(frequencies_are_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
