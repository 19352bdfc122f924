/* Tests the token budget of a step against simulated devices. Each test passes `step_budget` the
 * loads of steps and their times, and reads how many prompt tokens the next step may have.
 * Invariants: the budget converges to the target from below, tolerates noise, follows a device
 * that becomes slower in any of its costs, and never starves a prompt. tests/sim/budget_test.c
 * has random devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "head/budget/step_budget.h"

#define TARGET_NS (250 * NS_PER_MS)

/* Describes a simulated device. The time of a step is pass + cost of each sampled row + cost of
 * each prompt token, in microseconds. */
struct device {
    const char *name;
    uint64_t pass_us, sampled_us, token_us;
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
    return (d->pass_us + d->sampled_us * l.n_sampled + d->token_us * l.n_prompt) * NS_PER_US;
}

/* Holds an endless prompt that runs beside `n_sampled` decodes. Two steps are in flight, so each
 * result is one step late. */
struct bench {
    struct step_budget b;
    struct step_load in_flight[DEPTH];
    uint32_t n_steps, largest; /* largest: most prompt tokens of a step that has a result */
};

static void open_bench(struct bench *t)
{
    *t = (struct bench){0};
    step_budget_init(&t->b, TARGET_NS);
}

/* Ends the oldest step, passes its result to the budget and makes the next step. `noise` is a
 * factor on the time. Returns the time of the ended step, or 0 while no step has ended. */
static uint64_t turn(struct bench *t, const struct device *d, uint32_t n_sampled, double noise)
{
    struct step_load *place = &t->in_flight[t->n_steps % DEPTH];
    uint64_t ns = 0;
    if (t->n_steps++ >= DEPTH) {
        ns = (uint64_t)((double)takes_ns(d, *place) * noise);
        step_budget_on_result(&t->b, *place, ns);
        t->largest = place->n_prompt > t->largest ? place->n_prompt : t->largest;
    }
    *place = (struct step_load){.n_sampled = n_sampled,
                                .n_prompt = step_budget_prompt_tokens(&t->b, n_sampled)};
    assert_true(place->n_prompt >= STEP_BUDGET_FLOOR);
    assert_true(place->n_prompt <= (t->n_steps > DEPTH ? 2 * t->largest : 64));
    return ns;
}

static void it_converges(void **state)
{
    for (size_t i = 0; i < N_DEVICES; i++) {
        const struct device *d = &devices[i];
        const uint64_t first_ns = takes_ns(d, (struct step_load){.n_sampled = 0, .n_prompt = 64});
        const uint64_t floor_ns =
            takes_ns(d, (struct step_load){.n_sampled = 0, .n_prompt = STEP_BUDGET_FLOOR * 3 / 2});
        struct bench t;
        open_bench(&t);
        for (uint32_t k = 0; k < 60; k++) {
            uint64_t ns = turn(&t, d, 0, 1.0);
            /* The steps sent before the first result cannot know the device. The next steps
             * share the cost of the pass among many tokens, so the budget learns this cost late.
             * In the end no step is longer than the target. */
            uint64_t bound = k < 2 * DEPTH ? first_ns
                             : k < 20      ? 2 * TARGET_NS
                                           : TARGET_NS * 21 / 20;
            /* The first steps may take twice the floor, because the budget explores. */
            uint64_t least_ns = k < 20 ? 2 * floor_ns : floor_ns;
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
    for (uint32_t k = 0; k < 20; k++) /* steps of 16 decodes alone come first */
        step_budget_on_result(&t.b, (struct step_load){.n_sampled = 16, .n_prompt = 0},
                              takes_ns(d, (struct step_load){.n_sampled = 16, .n_prompt = 0}));
    for (uint32_t k = 0; k < 60; k++) {
        uint64_t ns = turn(&t, d, 16, 1.0);
        if (k > 40)
            assert_true(ns > TARGET_NS * 4 / 5 && ns < TARGET_NS * 21 / 20);
    }
    /* 16 decodes take 48 ms of the 250 ms, which is the time of 32 tokens of 1.5 ms. The pass
     * takes 12 ms. */
    uint32_t beside = step_budget_prompt_tokens(&t.b, 16),
             alone = step_budget_prompt_tokens(&t.b, 0), few = step_budget_prompt_tokens(&t.b, 3);
    assert_in_range(beside, 115, 127);
    assert_true(beside < few && few < alone);
    assert_in_range(alone - beside, 24, 40);
    assert_true(step_budget_prompt_tokens(&t.b, 32) < beside);
}

/* Decodes alone can take longer than the target. Prompts then get a third of the decodes' time,
 * plus 5/3 of the time beyond the target. They always get the floor, whatever costs are
 * estimated. */
static void no_prompt_starves(void **state)
{
    const struct device d = {"64 decodes take 400 ms", 16000, 6000, 2000};
    uint32_t n = 0;
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 20; k++)
        step_budget_on_result(&t.b, (struct step_load){.n_sampled = 64, .n_prompt = 0},
                              takes_ns(&d, (struct step_load){.n_sampled = 64, .n_prompt = 0}));
    for (uint32_t k = 0; k < 60; k++) {
        turn(&t, &d, 64, 1.0);
        if (k >= 40)
            n += step_budget_prompt_tokens(&t.b, 64);
    }
    /* prompts have 383 ms at 2 ms a token; every second step has fewer tokens */
    assert_in_range(n / 20, 165, 200);
    /* Prompts may take up to two thirds of a step. */
    assert_true(step_budget_prompt_tokens(&t.b, 100000) >= n / 20);
    for (uint32_t k = 0; k < 10; k++)
        step_budget_on_result(&t.b, (struct step_load){.n_sampled = 1, .n_prompt = 2}, UINT64_MAX);
    assert_in_range(step_budget_prompt_tokens(&t.b, 1), STEP_BUDGET_FLOOR, 64);
}

/* The decodes become slower while prompts wait in every step. An estimate that raises only the
 * cost of prompt tokens would end at one token a step, and that cost would stay too high for
 * ever. */
static void decodes_become_slower_while_prompts_wait(void **state)
{
    const struct device quiet = {"8 decodes take 20 ms", 12000, 1000, 2000};
    const struct {
        uint64_t pass_us;
        double best_s; /* seconds for 4096 prompt tokens beside such decodes, by the rule above */
    } slow[] = {{392000, 29.4}, {142000, 16.4}, {892000, 13.5}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct bench t;
        struct device d = quiet;
        uint64_t ns = 0;
        uint32_t done = 0;
        open_bench(&t);
        for (uint32_t k = 0; k < 50; k++)
            turn(&t, &quiet, 8, 1.0);
        d.pass_us = slow[i].pass_us;
        for (uint32_t k = 0; done < 4096 && k < 10000; k++) {
            ns += turn(&t, &d, 8, 1.0);
            done += t.in_flight[(t.n_steps - 1) % DEPTH].n_prompt;
        }
        if ((double)ns / 1e9 > 1.5 * slow[i].best_s)
            fail_msg("decodes of %u ms: 4096 tokens take %g s", (unsigned)(d.pass_us / 1000 + 8),
                     (double)ns / 1e9);
    }
}

/* The learnt costs stay bounded when all steps have the same size, because no step shows which
 * part of the time the prompts take. */
static void steps_that_look_alike_keep_the_costs_bounded(void **state)
{
    const struct device *d = &devices[1];
    struct step_budget b;
    step_budget_init(&b, TARGET_NS);
    for (uint32_t k = 0; k < 100000; k++) {
        const struct step_load same = {.n_sampled = 8, .n_prompt = 40};
        step_budget_on_result(&b, same, takes_ns(d, same));
    }
    double costs[] = {b.pass_ns, b.sampled_ns, b.token_ns},
           sum = costs[0] + 8 * costs[1] + 40 * costs[2];
    assert_true(
        sum > 0.97 * (double)takes_ns(d, (struct step_load){.n_sampled = 8, .n_prompt = 40}) &&
        sum < 1.03 * (double)takes_ns(d, (struct step_load){.n_sampled = 8, .n_prompt = 40}));
    for (int i = 0; i < 3; i++)
        assert_true(b.unsure[i][i] >= 0 && b.unsure[i][i] <= 5 * sum * sum);
    struct bench t = {.b = b, .n_steps = DEPTH, .largest = b.cap};
    for (uint32_t k = 0; k < 30; k++) { /* the budget recovers once sizes change */
        uint64_t ns = turn(&t, d, 8, 1.0);
        assert_true(ns < TARGET_NS * 6 / 5);
        assert_true(k < 20 || ns > TARGET_NS * 4 / 5);
    }
}

/* Any reported time leaves finite costs of at least 0 and a budget between the floor and the
 * cap. */
static void any_results_are_borne(void **state)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct rng rng = {seed};
        struct step_budget b;
        step_budget_init(&b, 1 + rng_below(&rng, 60 * NS_PER_S));
        for (uint32_t k = 0; k < 500; k++) {
            /* Separate statements keep the order of the calls. Within one expression it differs
             * between compilers. */
            uint64_t sampled = rng_next(&rng);
            uint64_t prompt = rng_next(&rng);
            uint64_t ns = rng_next(&rng);
            sampled >>= 32 + rng_below(&rng, 32);
            prompt >>= 32 + rng_below(&rng, 32);
            ns >>= rng_below(&rng, 64);
            struct step_load l = {.n_sampled = (uint32_t)sampled, .n_prompt = (uint32_t)prompt};
            step_budget_on_result(&b, l, ns);
            uint32_t n = step_budget_prompt_tokens(&b, l.n_sampled);
            bool known = b.token_ns > 0;
            assert_true(n >= STEP_BUDGET_FLOOR && n <= b.cap);
            assert_true(b.pass_ns >= 0 && b.sampled_ns >= 0 && b.token_ns >= 0);
            for (int i = 0; known && i < 3; i++)
                assert_true(b.unsure[i][i] >= 0 && b.unsure[i][i] < 1e26);
        }
    }
}

/* The budget follows a jump in the device's speed, up or down, within five steps after the
 * results show it. */
static void jumps_are_followed(void **state)
{
    for (uint32_t factor = 2; factor <= 20; factor++) {
        struct device slow = devices[0];
        slow.pass_us *= factor;
        slow.sampled_us *= factor;
        slow.token_us *= factor;
        struct bench t;
        open_bench(&t);
        for (uint32_t k = 0; k < 60; k++)
            turn(&t, &devices[0], 4, 1.0);
        for (uint32_t k = 0; k < 60; k++) {
            uint64_t ns = turn(&t, &slow, 4, 1.0);
            if (k >= 5 + DEPTH && ns > TARGET_NS * 6 / 5)
                fail_msg("%u times slower, step %u: %g ms", factor, k, (double)ns / 1e6);
        }
        uint64_t ns = 0;
        for (uint32_t k = 0; k < 20; k++)
            ns = turn(&t, &devices[0], 4, 1.0);
        assert_true(ns > TARGET_NS * 4 / 5);
    }
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
                noise = 30; /* this step takes as long as if the machine had not run meanwhile */
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
    struct step_budget stood_still = t.b; /* one very slow step does not make the device slow */
    step_budget_on_result(&stood_still, (struct step_load){.n_sampled = 0, .n_prompt = before},
                          3600 * NS_PER_S);
    assert_true(step_budget_prompt_tokens(&stood_still, 0) >= before / 4);
    for (uint32_t k = 0; k < 50; k++)
        late += turn(&t, &slow, 0, 1.0) > 2 * TARGET_NS;
    assert_in_range(late, 1, 6);
    assert_true(step_budget_prompt_tokens(&t.b, 0) * 8 < before);
    for (uint32_t k = 0; k < 50; k++)
        turn(&t, &devices[1], 0, 1.0);
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before * 4 / 5);
}

/* A short prompt costs a whole pass. A long prompt after it is not cut into tiny chunks, and the
 * costs learnt from long prompts stay. */
static void short_prompts_say_little(void **state)
{
    const struct device *d = &devices[1];
    const struct step_load few = {.n_sampled = 1, .n_prompt = 3};
    struct bench t;
    open_bench(&t);
    for (uint32_t k = 0; k < 50; k++)
        turn(&t, d, 0, 1.0);
    uint32_t before = step_budget_prompt_tokens(&t.b, 0);
    for (uint32_t k = 0; k < 5; k++)
        step_budget_on_result(&t.b, few, takes_ns(d, few));
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before / 2);
    /* Steps of decodes alone in between show the cost of the pass. */
    for (uint32_t k = 0; k < 1000; k++) {
        step_budget_on_result(&t.b, (struct step_load){.n_sampled = 1, .n_prompt = 0},
                              takes_ns(d, (struct step_load){.n_sampled = 1, .n_prompt = 0}));
        step_budget_on_result(&t.b, few, takes_ns(d, few));
    }
    assert_true(step_budget_prompt_tokens(&t.b, 0) > before * 3 / 4);
}

static void without_a_target_or_times(void **state)
{
    struct step_budget b;
    step_budget_init(&b, 0);
    step_budget_on_result(&b, (struct step_load){.n_sampled = 1, .n_prompt = 100}, NS_PER_S);
    assert_int_equal(step_budget_prompt_tokens(&b, 7), UINT32_MAX);
    step_budget_init(&b, TARGET_NS);
    assert_int_equal(step_budget_prompt_tokens(&b, 0), 64);
    step_budget_on_result(&b, (struct step_load){.n_sampled = 0, .n_prompt = 0},
                          NS_PER_S); /* this step is empty */
    step_budget_on_result(&b, (struct step_load){.n_sampled = 4, .n_prompt = 60},
                          0); /* this result has no time */
    assert_int_equal(step_budget_prompt_tokens(&b, 8), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_converges),
        cmocka_unit_test(decodes_are_part_of_the_step),
        cmocka_unit_test(no_prompt_starves),
        cmocka_unit_test(decodes_become_slower_while_prompts_wait),
        cmocka_unit_test(steps_that_look_alike_keep_the_costs_bounded),
        cmocka_unit_test(any_results_are_borne),
        cmocka_unit_test(jumps_are_followed),
        cmocka_unit_test(noise_is_borne),
        cmocka_unit_test(a_device_that_becomes_slower),
        cmocka_unit_test(short_prompts_say_little),
        cmocka_unit_test(without_a_target_or_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
