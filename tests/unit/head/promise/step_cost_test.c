/* Tests the learnt costs of steps: they reach the true costs under noise, follow a machine that
 * becomes slower, keep the cost of prompts while only decodes run, and are never negative. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "head/promise/step_cost.h"

static const double pass_ns = 6e6, row_ns = 8e5, token_ns = 5e5, context_ns = 500;

static double true_ns(const struct step_work *w)
{
    return pass_ns + row_ns * w->n_rows + token_ns * w->n_tokens + context_ns * w->n_context;
}

static struct step_work draw(struct rng *r, bool prompts)
{
    struct step_work w = {.n_rows = 1 + (double)rng_below(r, 16)};
    w.n_context = w.n_rows * (double)rng_below(r, 500);
    if (prompts && rng_below(r, 4) == 0) {
        double n = 1 + (double)rng_below(r, 250);
        w.n_tokens = n;
        w.n_context += n * n / 2;
    }
    return w;
}

static void learn(struct step_cost *c, struct rng *r, int n, double slower, bool prompts)
{
    for (int i = 0; i < n; i++) {
        const struct step_work w = draw(r, prompts);
        double noise = 0.9 + 0.2 * (double)rng_below(r, 1000) / 1000;
        step_cost_on_result(c, &w, slower * noise * true_ns(&w));
    }
}

static void assert_near(const struct step_cost *c, const struct step_work *w, double slower,
                        double within)
{
    double ratio = step_cost_ns(c, w) / (slower * true_ns(w));
    if (ratio < 1 - within || ratio > 1 + within)
        fail_msg("expected / true time is %.3f", ratio);
}

static const struct step_work decodes = {8, 0, 2000}, prompt = {1, 199, 20000},
                              both = {9, 199, 22000};

static void costs_are_learnt(void **state)
{
    struct step_cost c;
    struct rng r = {1};
    step_cost_init(&c, NULL);
    assert_false(step_cost_is_known(&c));
    learn(&c, &r, 400, 1, true);
    assert_true(step_cost_is_known(&c));
    assert_near(&c, &decodes, 1, 0.08);
    assert_near(&c, &prompt, 1, 0.08);
    assert_near(&c, &both, 1, 0.08);
}

static void a_slower_machine_is_noticed(void **state)
{
    struct step_cost c;
    struct rng r = {2};
    step_cost_init(&c, NULL);
    learn(&c, &r, 400, 1, true);
    learn(&c, &r, 40, 2, true);
    assert_near(&c, &decodes, 2, 0.2);
    assert_near(&c, &prompt, 2, 0.2);
}

static void prompts_keep_their_cost(void **state)
{
    struct step_cost c;
    struct rng r = {3};
    step_cost_init(&c, NULL);
    learn(&c, &r, 400, 1, true);
    learn(&c, &r, 5000, 1, false);
    assert_near(&c, &decodes, 1, 0.08);
    assert_near(&c, &prompt, 1, 0.25);
}

static void one_outlier_moves_little(void **state)
{
    struct step_cost c;
    struct rng r = {4};
    step_cost_init(&c, NULL);
    learn(&c, &r, 400, 1, true);
    step_cost_on_result(&c, &decodes, 1e12);
    assert_near(&c, &prompt, 1, 0.3);
    learn(&c, &r, 40, 1, true);
    assert_near(&c, &prompt, 1, 0.12);
}

static void no_cost_is_negative(void **state)
{
    struct rng r = {5};
    for (int run = 0; run < 200; run++) {
        struct step_cost c;
        step_cost_init(&c, NULL);
        for (int i = 0; i < 50; i++) {
            const struct step_work w = draw(&r, rng_below(&r, 2) == 0);
            step_cost_on_result(&c, &w, 1 + (double)rng_below(&r, 1000000000));
            for (int k = 0; k < STEP_COST_TERMS; k++)
                assert_true(c.cost[k] >= 0 && c.cost[k] < 1e18);
            assert_true(step_cost_ns(&c, &prompt) > 0);
            assert_true(step_cost_added_ns(&c, &prompt) >= 0);
        }
    }
}

static void equal_steps_and_empty_ones(void **state)
{
    struct step_cost c;
    step_cost_init(&c, NULL);
    for (int i = 0; i < 3000; i++)
        step_cost_on_result(&c, &decodes, 5e6);
    assert_true(step_cost_ns(&c, &decodes) > 4.9e6 && step_cost_ns(&c, &decodes) < 5.1e6);
    const struct step_cost before = c;
    step_cost_on_result(&c, &(struct step_work){0}, 5e6);
    step_cost_on_result(&c, &decodes, 0);
    assert_int_equal(c.n_results, before.n_results);
}

static void another_replica_starts_with_the_costs(void **state)
{
    struct step_cost a, b;
    struct rng r = {6};
    step_cost_init(&a, NULL);
    learn(&a, &r, 400, 1, true);
    step_cost_init(&b, &a);
    assert_true(step_cost_is_known(&b));
    assert_near(&b, &prompt, 1, 0.08);
    learn(&b, &r, 60, 3, true);
    assert_near(&b, &prompt, 3, 0.15);
    step_cost_init(&a, &a);
    assert_near(&a, &prompt, 1, 0.08);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_learnt),
        cmocka_unit_test(a_slower_machine_is_noticed),
        cmocka_unit_test(prompts_keep_their_cost),
        cmocka_unit_test(one_outlier_moves_little),
        cmocka_unit_test(no_cost_is_negative),
        cmocka_unit_test(equal_steps_and_empty_ones),
        cmocka_unit_test(another_replica_starts_with_the_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
