/* The token budget of a step against simulated devices: it converges to the target from below,
 * bears noise, follows a device that becomes slower, and never starves a prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "head/step_budget.h"

#define TARGET_NS (250 * NS_PER_MS)

/* time(step) = pass + each drawn row + each prompt token, in microseconds. */
struct device {
    const char *name;
    uint64_t pass_us, drawn_us, token_us;
};

static const struct device devices[] = {
    {"a small model on many cores", 2000, 500, 50},
    {"270 M on two cores", 12000, 3000, 1500},
    {"1 B on two cores", 60000, 8000, 6000},
    {"7 B on two cores", 200000, 30000, 25000},
    {"one token takes longer than the target", 300000, 300000, 300000},
};
enum { N_DEVICES = sizeof devices / sizeof *devices, DEPTH = 2 };

static uint64_t takes_ns(const struct device *d, struct step_load l)
{
    return (d->pass_us + d->drawn_us * l.n_drawn + d->token_us * l.n_prompt) * NS_PER_US;
}

/* A prompt without end beside n_drawn decodes, two steps in flight: results are one step late. */
struct bench {
    struct step_budget b;
    struct step_load in_flight[DEPTH];
    uint32_t n_steps, largest; /* largest: prompt tokens of a step whose result is in */
};

static void open_bench(struct bench *t)
{
    *t = (struct bench){0};
    step_budget_init(&t->b, TARGET_NS);
}

/* The oldest step ends, its result is in, the next one is made. The time of the one that ended, 0
 * while nothing has; noise: a factor on it. */
static uint64_t turn(struct bench *t, const struct device *d, uint32_t n_drawn, double noise)
{
    struct step_load *place = &t->in_flight[t->n_steps % DEPTH];
    uint64_t ns = 0;
    if (t->n_steps++ >= DEPTH) {
        ns = (uint64_t)((double)takes_ns(d, *place) * noise);
        step_budget_on_result(&t->b, *place, ns);
        t->largest = place->n_prompt > t->largest ? place->n_prompt : t->largest;
    }
    *place = (struct step_load){n_drawn, step_budget_prompt_tokens(&t->b, n_drawn)};
    assert_true(place->n_prompt >= 1);
    assert_true(place->n_prompt <= (t->n_steps > DEPTH ? 2 * t->largest : 64));
    return ns;
}

static void it_converges(void **state)
{
    for (size_t i = 0; i < N_DEVICES; i++) {
        const struct device *d = &devices[i];
        const uint64_t first_ns = takes_ns(d, (struct step_load){0, 64});
        const uint64_t least_ns = takes_ns(d, (struct step_load){0, 1});
        struct bench t;
        open_bench(&t);
        for (uint32_t k = 0; k < 60; k++) {
            uint64_t ns = turn(&t, d, 0, 1.0);
            /* The steps sent before the first result cannot know. Then the pass over the weights,
             * shared by many tokens at first, is felt; in the end no step is longer than asked. */
            uint64_t bound = k < 2 * DEPTH ? first_ns
                             : k < 20      ? 2 * TARGET_NS
                                           : TARGET_NS * 21 / 20;
            if (ns > (bound > least_ns ? bound : least_ns))
                fail_msg("%s, step %u: %g ms", d->name, k, (double)ns / 1e6);
            if (k > 40 && ns + TARGET_NS / 5 < TARGET_NS)
                fail_msg("%s, step %u: only %g ms", d->name, k, (double)ns / 1e6);
        }
    }
}

static void decodes_are_part_of_the_step(void **state)
{
    const struct device *d = &devices[1];
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 20; k++) /* what 16 decodes alone take is known first */
        step_budget_on_result(&t.b, (struct step_load){16, 0},
                              takes_ns(d, (struct step_load){16, 0}));
    for (uint32_t k = 0; k < 60; k++) {
        uint64_t ns = turn(&t, d, 16, 1.0);
        if (k > 40)
            assert_true(ns > TARGET_NS * 4 / 5 && ns < TARGET_NS * 21 / 20);
    }
    /* 60 ms of the 250 are the decodes' own */
    uint32_t beside = step_budget_prompt_tokens(&t.b, 16),
             alone = step_budget_prompt_tokens(&t.b, 0);
    assert_true(beside < alone);
    assert_in_range(alone - beside, 30, 50);
    assert_int_equal(step_budget_prompt_tokens(&t.b, 3), beside); /* one pass in any case */
    assert_true(step_budget_prompt_tokens(&t.b, 32) < beside);
}

/* Decodes that take longer than the target leave prompts a quarter of it. */
static void no_prompt_starves(void **state)
{
    const struct device d = {"64 decodes take 400 ms", 16000, 6000, 2000};
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 20; k++)
        step_budget_on_result(&t.b, (struct step_load){64, 0},
                              takes_ns(&d, (struct step_load){64, 0}));
    for (uint32_t k = 0; k < 60; k++)
        turn(&t, &d, 64, 1.0);
    uint32_t n = step_budget_prompt_tokens(&t.b, 64);
    assert_in_range(n, 25, 32); /* 62.5 ms of 2 ms each */
    assert_true(step_budget_prompt_tokens(&t.b, 100000) >= n - 1);
    for (uint32_t k = 0; k < 10; k++)
        step_budget_on_result(&t.b, (struct step_load){1, 2}, UINT64_MAX);
    assert_true(step_budget_prompt_tokens(&t.b, 64) >= 1);
}

static void noise_is_borne(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = {seed};
        struct bench t;
        double sum = 0;
        uint32_t n = 0;
        open_bench(&t);
        for (uint32_t k = 0; k < 300; k++) {
            double noise = 0.6 + (double)(rng_next(&rng) % 1000) / 1000 * 0.8;
            if (k % 50 == 49)
                noise = 30; /* the machine stood still */
            uint64_t ns = turn(&t, &devices[1], 0, noise);
            if (k > 20 && noise < 2) {
                assert_true(ns < 2 * TARGET_NS);
                sum += (double)ns;
                n++;
            }
        }
        double mean = sum / n / TARGET_NS;
        if (mean < 0.6 || mean > 1.1)
            fail_msg("seed %u: steps take %g of the target", (unsigned)seed, mean);
    }
}

static void a_device_that_becomes_slower(void **state)
{
    struct device slow = devices[1];
    slow.pass_us *= 10;
    slow.token_us *= 10;
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 50; k++)
        turn(&t, &devices[1], 0, 1.0);
    uint32_t before = step_budget_prompt_tokens(&t.b, 0), late = 0;
    struct step_budget stood_still = t.b; /* once is not a slower device */
    step_budget_on_result(&stood_still, (struct step_load){0, before}, 3600 * NS_PER_S);
    assert_true(step_budget_prompt_tokens(&stood_still, 0) >= before / 4);
    for (uint32_t k = 0; k < 50; k++)
        late += turn(&t, &slow, 0, 1.0) > 2 * TARGET_NS;
    assert_in_range(late, 1, 6);
    assert_true(step_budget_prompt_tokens(&t.b, 0) * 8 < before);
    for (uint32_t k = 0; k < 50; k++)
        turn(&t, &devices[1], 0, 1.0);
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before * 4 / 5);
}

/* Prompts of a few tokens cost a pass each; a long one that follows is not cut to crumbs, and what
 * was learnt of long ones stays. */
static void short_prompts_say_little(void **state)
{
    const struct device *d = &devices[1];
    const struct step_load few = {1, 3};
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 50; k++)
        turn(&t, d, 0, 1.0);
    uint32_t before = step_budget_prompt_tokens(&t.b, 0);
    for (uint32_t k = 0; k < 5; k++)
        step_budget_on_result(&t.b, few, takes_ns(d, few));
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before / 2);
    for (uint32_t k = 0; k < 1000; k++) { /* with decodes between them the pass is known */
        step_budget_on_result(&t.b, (struct step_load){1, 0},
                              takes_ns(d, (struct step_load){1, 0}));
        step_budget_on_result(&t.b, few, takes_ns(d, few));
    }
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before * 3 / 4);
}

static void without_a_target_or_times(void **state)
{
    struct step_budget b;
    step_budget_init(&b, 0);
    step_budget_on_result(&b, (struct step_load){1, 100}, NS_PER_S);
    assert_int_equal(step_budget_prompt_tokens(&b, 7), UINT32_MAX);
    step_budget_init(&b, TARGET_NS);
    assert_int_equal(step_budget_prompt_tokens(&b, 0), 64);
    step_budget_on_result(&b, (struct step_load){0, 0}, NS_PER_S); /* nothing was asked of it */
    step_budget_on_result(&b, (struct step_load){4, 60}, 0);       /* no time was said */
    assert_int_equal(step_budget_prompt_tokens(&b, 8), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_converges),
        cmocka_unit_test(decodes_are_part_of_the_step),
        cmocka_unit_test(no_prompt_starves),
        cmocka_unit_test(noise_is_borne),
        cmocka_unit_test(a_device_that_becomes_slower),
        cmocka_unit_test(short_prompts_say_little),
        cmocka_unit_test(without_a_target_or_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
