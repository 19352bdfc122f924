/* Tests the replay of the steps until a first token: on an idle replica, behind running prompts,
 * behind a queue, beside decodes, with steps in flight, with full slots and a full KV cache, with
 * later requests, and with a queue that is longer than what is replayed; and whether the next
 * plan has the request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "head/promise/first_token.h"

/* a step takes 10 ms, 1 ms for each row that samples, and 0.1 ms for each other row */
static const struct step_cost cost = {.cost = {1e7, 1e6, 1e5, 0}, .n_results = 100};
static const struct first_token_flight none = {0};
static struct step_budget no_target;

static struct first_token_work idle(void)
{
    return (struct first_token_work){.depth = 2,
                                     .n_rows_max = 1000,
                                     .n_each = 1,
                                     .budget = &no_target,
                                     .longest_ns = UINT64_MAX,
                                     .mean_answer = 50,
                                     .own = {101, 0},
                                     .n_free_slots = 16,
                                     .n_free_tokens = 1e6};
}

static void assert_ms(double ns, double ms)
{
    if (ns < 0.999 * ms * 1e6 || ns > 1.001 * ms * 1e6)
        fail_msg("%.3f ms instead of %.3f ms", ns / 1e6, ms);
}

static void alone(void **state)
{
    struct first_token_work w = idle();
    assert_ms(first_token_ns(&w, &cost, &none), 10 + 1 + 10);
    w.own = (struct first_token_prompt){1, 100}; /* the rest of the prompt is cached */
    assert_ms(first_token_ns(&w, &cost, &none), 10 + 1);
    w.own = (struct first_token_prompt){2001, 0}; /* three steps of at most 1000 rows */
    assert_ms(first_token_ns(&w, &cost, &none), 3 * 10 + 1 + 200);
    w.chunk = 500; /* five steps */
    assert_ms(first_token_ns(&w, &cost, &none), 5 * 10 + 1 + 200);
}

static void steps_in_flight_come_first(void **state)
{
    const struct first_token_work w = idle();
    const struct first_token_flight f = {{3e6, 4e6}, 2};
    assert_ms(first_token_ns(&w, &cost, &f), 7 + 21);
}

static void decodes_run_beside(void **state)
{
    struct first_token_work w = idle();
    w.n_decodes = 6;
    assert_ms(first_token_ns(&w, &cost, &none), 10 + 7 + 10);
}

static void others_in_front(void **state)
{
    struct first_token_work w = idle();
    w.running[w.n_running++] = (struct first_token_prompt){301, 0};
    w.n_ahead = 2;
    w.n_ahead_tokens = 402;
    assert_ms(first_token_ns(&w, &cost, &none), 10 + 4 + 80); /* all in one step */
    w.n_rows_max = 301;
    /* 301; 201 and 100 of the second; 101 and 101 of its own, beside the decodes of the others */
    double ns = first_token_ns(&w, &cost, &none);
    assert_true(ns > (3 * 10 + 80 + 4) * 1e6 && ns < (3 * 10 + 80 + 10) * 1e6);
}

static void full_slots_wait_for_an_end(void **state)
{
    struct first_token_work w = idle();
    w.n_decodes = 5;
    w.n_free_slots = 0;
    double ns = first_token_ns(&w, &cost, &none);
    assert_true(ns > 9 * 14e6 && ns < 13 * 16e6); /* 5 decodes of 50 tokens: an end in 10 steps */
    w.n_free_slots = 16;
    w.n_free_tokens = 50; /* the request needs 101 */
    w.n_tokens_per_end = 100;
    double of_cache = first_token_ns(&w, &cost, &none);
    assert_true(of_cache > 5 * 14e6 && of_cache < 8 * 16e6);
}

static void later_requests_share_the_step(void **state)
{
    struct first_token_work w = idle();
    const struct first_token_flight f = {{1e7, 1e7}, 2};
    w.later_tokens = 100 / 1e7; /* 100 tokens come until the next plan is made */
    w.later_requests = 1 / 1e7;
    assert_ms(first_token_ns(&w, &cost, &f), 20 + 10 + 2 + 19.9);
    /* on an idle replica the plan is made at once */
    assert_ms(first_token_ns(&w, &cost, &none), 21);
}

static void the_next_plan_has_the_request(void **state)
{
    struct first_token_work w = idle();
    assert_true(first_token_is_next(&w));
    w.running[w.n_running++] = (struct first_token_prompt){301, 0};
    w.n_ahead = 2;
    w.n_ahead_tokens = 402;
    assert_true(first_token_is_next(&w));
    w.n_ahead_tokens = 802; /* with those in front the step is full */
    assert_false(first_token_is_next(&w));
    w = idle();
    w.n_free_slots = 0;
    assert_false(first_token_is_next(&w));
    w = idle();
    w.n_free_tokens = 50;
    assert_false(first_token_is_next(&w));
}

static void a_long_queue_is_extrapolated(void **state)
{
    struct first_token_work w = idle();
    w.mean_answer = 1;
    w.n_ahead = 40000;
    w.n_ahead_tokens = 40000.0 * 1000; /* a step for each */
    double ns = first_token_ns(&w, &cost, &none), each = 10 + 2 + 99.9;
    assert_true(ns > 0.9e6 * each * 40000 && ns < 1.1e6 * each * 40000);
}

/* A replica whose slots never become free ends the replay too. */
static void nothing_moves(void **state)
{
    struct first_token_work w = idle();
    w.n_free_slots = 0;
    double ns = first_token_ns(&w, &cost, &none);
    assert_true(ns > 1e9 && ns < 1e18);
}

int main(void)
{
    step_budget_init(&no_target, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(steps_in_flight_come_first),
        cmocka_unit_test(decodes_run_beside),
        cmocka_unit_test(others_in_front),
        cmocka_unit_test(full_slots_wait_for_an_end),
        cmocka_unit_test(later_requests_share_the_step),
        cmocka_unit_test(the_next_plan_has_the_request),
        cmocka_unit_test(a_long_queue_is_extrapolated),
        cmocka_unit_test(nothing_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
