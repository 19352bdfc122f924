/* Tests when a removed model ends (cli/up/set/leave.h), by times and answers of its head.
 * Invariant: a model with open requests ends after SET_LEAVE_MAX_S only. */
#include "cli/up/set/leave.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"

/* Returns the decision at a time after the removal, in ms. The removal is at 100 s. */
static enum set_leave decide(struct set_heard h, int64_t now_ms)
{
    const uint64_t left_ns = 100 * NS_PER_S;
    return set_leave_decide(&h, left_ns, left_ns + (uint64_t)now_ms * NS_PER_MS);
}

/* Returns an answer at a time after the removal, in ms; before it when negative. */
static struct set_heard answer(bool is_known, uint32_t n_open, int64_t answered_ms,
                               int64_t idle_since_ms)
{
    const int64_t left_ms = 100000;
    struct set_heard h = {.is_known = is_known, .n_open = n_open};
    h.answered_ns = (uint64_t)(left_ms + answered_ms) * NS_PER_MS;
    h.idle_since_ns = n_open > 0 || !is_known ? 0 : (uint64_t)(left_ms + idle_since_ms) * NS_PER_MS;
    return h;
}

static void an_idle_model_ends_when_no_request_can_come(void **state)
{
    assert_int_equal(decide(answer(true, 0, 1000, -5000), 1000), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(true, 0, 1400, -5000), 1600), SET_LEAVE_WAIT); /* too old */
    assert_int_equal(decide(answer(true, 0, 1600, -5000), 1600), SET_LEAVE_END);
}

static void one_missing_answer_ends_nothing(void **state)
{
    /* the last news is minutes old, but the head has answered a moment ago */
    assert_int_equal(decide(answer(false, 1, 59000, 0), 59100), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(false, 1, 59000, 0), 69100), SET_LEAVE_END);
    /* a head that never answered is dead from the removal on */
    assert_int_equal(decide((struct set_heard){0}, 9000), SET_LEAVE_WAIT);
    assert_int_equal(decide((struct set_heard){0}, 10100), SET_LEAVE_END);
}

static void a_head_that_starts_again_knows_no_requests_yet(void **state)
{
    assert_int_equal(decide(answer(true, 0, 30000, 30000), 30050), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(true, 0, 31400, 30000), 31450), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(true, 1, 31400, 0), 31450), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(true, 0, 31500, 30000), 31550), SET_LEAVE_END);
}

static void open_requests_have_a_bound(void **state)
{
    const int64_t most_ms = SET_LEAVE_MAX_S * 1000;
    assert_int_equal(decide(answer(true, 1, 59000, 0), 59000), SET_LEAVE_WAIT);
    assert_int_equal(decide(answer(true, 1, 61000, 0), 61000), SET_LEAVE_SLOW);
    assert_int_equal(decide(answer(true, 1, most_ms - 100, 0), most_ms - 1), SET_LEAVE_SLOW);
    assert_int_equal(decide(answer(true, 1, most_ms, 0), most_ms), SET_LEAVE_LATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_model_ends_when_no_request_can_come),
        cmocka_unit_test(one_missing_answer_ends_nothing),
        cmocka_unit_test(a_head_that_starts_again_knows_no_requests_yet),
        cmocka_unit_test(open_requests_have_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
