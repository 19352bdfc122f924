/* Tests which requests of GET /scale wait, and when they are answered. The requests are only
 * addresses here: this module never looks into them. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/admin/calls/scale_calls.h"
#include "head/core/scale.h"

static char requests[SCALE_CALLS_MAX + 1];
static uint32_t n_answers[SCALE_CALLS_MAX + 1];

static struct http_request *request(uint32_t i)
{
    return (struct http_request *)&requests[i];
}

static void answer(void *ctx, struct http_request *r)
{
    assert_ptr_equal(ctx, requests);
    n_answers[(char *)r - requests]++;
}

static struct fixture *begin(struct scale_calls **out)
{
    struct fixture *f = fixture_new(2);
    memset(n_answers, 0, sizeof n_answers);
    *out = scale_calls_new(f->core, answer, requests);
    return f;
}

static uint32_t sum(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i <= SCALE_CALLS_MAX; i++)
        n += n_answers[i];
    return n;
}

static void test_a_request_waits_for_a_change(void **unused)
{
    struct scale_calls *s;
    struct fixture *f = begin(&s);
    const uint64_t seen = head_core_scale_version(f->core);
    assert_true(seen > 0 && seen < UINT64_C(1) << 53);
    assert_true(scale_calls_keep(s, request(0), seen, 1000, f->now));
    scale_calls_turn(s, f->now + 999 * MS);
    assert_int_equal(sum(), 0);
    (void)form_pair(f); /* a replica serves */
    assert_int_not_equal(head_core_scale_version(f->core), seen);
    scale_calls_turn(s, f->now);
    scale_calls_turn(s, f->now + 2000 * MS);
    assert_int_equal(n_answers[0], 1);
    assert_int_equal(sum(), 1);
    scale_calls_free(s);
    fixture_free(f);
}

static void test_the_time_ends_a_wait(void **unused)
{
    struct scale_calls *s;
    struct fixture *f = begin(&s);
    const uint64_t seen = head_core_scale_version(f->core);
    assert_true(scale_calls_keep(s, request(0), seen, 1000, f->now));
    assert_true(scale_calls_keep(s, request(1), seen, SCALE_WAIT_MAX_MS, f->now));
    scale_calls_turn(s, f->now + 1000 * MS);
    assert_true(n_answers[0] == 1 && sum() == 1);
    scale_calls_turn(s, f->now + SCALE_WAIT_MAX_MS * MS);
    assert_true(n_answers[1] == 1 && sum() == 2);
    scale_calls_free(s);
    fixture_free(f);
}

static void test_some_are_answered_at_once(void **unused)
{
    struct scale_calls *s;
    struct fixture *f = begin(&s);
    const uint64_t seen = head_core_scale_version(f->core);
    assert_false(scale_calls_keep(s, request(0), seen, 0, f->now));        /* no wait was asked */
    assert_false(scale_calls_keep(s, request(0), 0, 1000, f->now));        /* nothing was seen */
    assert_false(scale_calls_keep(s, request(0), seen + 1, 1000, f->now)); /* it has changed */
    for (uint32_t i = 0; i < SCALE_CALLS_MAX; i++)
        assert_true(scale_calls_keep(s, request(i), seen, 1000, f->now));
    assert_false(scale_calls_keep(s, request(SCALE_CALLS_MAX), seen, 1000, f->now));
    scale_calls_on_abort(s, request(SCALE_CALLS_MAX)); /* it does not wait */
    scale_calls_on_abort(s, request(3));
    assert_true(scale_calls_keep(s, request(SCALE_CALLS_MAX), seen, 1000, f->now));
    scale_calls_free(s); /* a head that stops answers */
    assert_int_equal(n_answers[3], 0);
    assert_int_equal(sum(), SCALE_CALLS_MAX);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_waits_for_a_change),
        cmocka_unit_test(test_the_time_ends_a_wait),
        cmocka_unit_test(test_some_are_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
