/* Tests the estimates of a replica's speed, learnt from the results of its steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "head/state/step_time.h"

static double step_ns(const struct step_time *t, double n_tokens)
{
    struct step_speed s = step_time_speed(t);
    return s.base_ns + s.token_ns * n_tokens;
}

static void assert_near(double got, double want, double tolerance)
{
    if (got < want * (1 - tolerance) || got > want * (1 + tolerance))
        fail_msg("got %g, want %g", got, want);
}

/* Reports n requests, each with a prompt of 500 tokens and 10 decodes, beside seven other
 * decodes. */
static void serve(struct step_time *t, double base_ns, double token_ns, int n)
{
    for (int i = 0; i < 11 * n; i++) {
        uint32_t x = i % 11 == 0 ? 507 : 8;
        step_time_on_result(t, x, i % 11 == 10, (uint64_t)(base_ns + token_ns * x), 1);
    }
}

static void the_line_is_found(void **state)
{
    static const struct {
        double base_ns, token_ns;
    } cases[] = {{20e6, 36e3}, {0, 1e6}, {3e6, 100}, {1e4, 3e5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step_time t;
        step_time_init(&t, (struct step_speed){0});
        serve(&t, cases[i].base_ns, cases[i].token_ns, 4);
        for (uint32_t x = 8; x <= 8192; x *= 4)
            assert_near(step_ns(&t, x), cases[i].base_ns + cases[i].token_ns * x, 0.15);
    }
}

/* After a thousand decodes, the cost of a prompt is still known. When the decodes become slower,
 * the estimate for prompts follows. */
static void a_replica_that_slows_down_is_known_by_its_decodes(void **state)
{
    struct step_time t;
    step_time_init(&t, (struct step_speed){0});
    serve(&t, 20e6, 36e3, 4);
    for (int i = 0; i < 1000; i++)
        step_time_on_result(&t, 8, 0, 20288000, 1);
    assert_near(step_ns(&t, 2000), 92e6, 0.2);
    for (int i = 0; i < 24; i++)
        step_time_on_result(&t, 8, 0, 4 * 20288000, 1);
    assert_near(step_ns(&t, 2000), 4 * 92e6, 0.3);
}

static void one_outlier_does_not_count_for_much(void **state)
{
    struct step_time t;
    step_time_init(&t, (struct step_speed){0});
    serve(&t, 20e6, 36e3, 4);
    step_time_on_result(&t, 8, 0, 60000000000, 1);
    assert_near(step_ns(&t, 500), 38e6, 1.1);
    step_time_on_result(&t, 8, 0, 1, 1);
    serve(&t, 20e6, 36e3, 4);
    assert_near(step_ns(&t, 500), 38e6, 0.2);
}

static void a_new_replica_is_taken_for_one_like_the_others(void **state)
{
    struct step_time t;
    step_time_init(&t, (struct step_speed){20e6, 36e3});
    assert_near(step_ns(&t, 8), 20e6 + 8 * 36e3, 0.01);
    assert_near(step_ns(&t, 2000), 20e6 + 2000 * 36e3, 0.01);
    serve(&t, 40e6, 72e3, 6); /* the estimate soon follows the real speed */
    assert_near(step_ns(&t, 2000), 40e6 + 2000 * 72e3, 0.25);
    step_time_init(&t, (struct step_speed){20e6, 36e3});
    step_time_on_result(&t, 0, 0, 5, 1); /* a step without rows or time changes nothing */
    step_time_on_result(&t, 5, 0, 0, 1);
    assert_near(step_ns(&t, 8), 20e6 + 8 * 36e3, 0.01);
}

static void the_time_between_ends_is_measured(void **state)
{
    struct step_time t;
    step_time_init(&t, (struct step_speed){0});
    serve(&t, 20e6, 36e3, 200); /* one request ends in 11 steps */
    assert_near(step_time_between_ends_ns(&t, 8), 11 * 20e6, 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_is_found),
        cmocka_unit_test(a_replica_that_slows_down_is_known_by_its_decodes),
        cmocka_unit_test(one_outlier_does_not_count_for_much),
        cmocka_unit_test(a_new_replica_is_taken_for_one_like_the_others),
        cmocka_unit_test(the_time_between_ends_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
