/* Tests that a warning names a rank that makes the others wait, and that a rank that is slow for
 * a short time is not named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "head/cluster/straggler.h"

#define MS NS_PER_MS

/* Adds n steps of `step_ns` to the sums of the process. */
static void work(struct own_time *t, uint64_t *ns, uint64_t *steps, uint64_t step_ns, uint64_t n)
{
    *steps += n;
    *ns += n * step_ns;
    own_time_take(t, *ns, *steps);
}

static void a_mean_is_of_a_whole_window(void **state)
{
    struct own_time t = {0};
    uint64_t ns = 0, steps = 0;
    /* The start of the window is unknown, so the first report sets only this start. */
    work(&t, &ns, &steps, 50 * MS, 4);
    work(&t, &ns, &steps, 50 * MS, 15);
    assert_int_equal(t.mean_ns, 0);
    work(&t, &ns, &steps, 50 * MS, 5);
    assert_int_equal(t.mean_ns, 50 * MS);
    assert_true(t.fresh);
}

static void three_windows_make_a_straggler_and_one_less_slow_ends_it(void **state)
{
    struct own_time t = {.mean_ns = 100 * MS};
    assert_false(own_time_judge(&t, 40 * MS));
    assert_false(own_time_judge(&t, 40 * MS));
    assert_true(own_time_judge(&t, 40 * MS));
    assert_true(t.is_straggler);
    t.mean_ns = 70 * MS; /* the mean is between the two bounds, so the verdict stays */
    assert_false(own_time_judge(&t, 40 * MS));
    assert_true(t.is_straggler);
    t.mean_ns = 50 * MS;
    assert_true(own_time_judge(&t, 40 * MS));
    assert_false(t.is_straggler);
}

static void slow_once_is_nothing_and_neither_is_a_tenth_of_a_millisecond(void **state)
{
    struct own_time t = {0};
    for (int i = 0; i < 9; i++) {
        t.mean_ns = i % 3 == 2 ? 40 * MS : 100 * MS;
        assert_false(own_time_judge(&t, 40 * MS));
    }
    t = (struct own_time){.mean_ns = MS / 2};
    for (int i = 0; i < 9; i++)
        assert_false(own_time_judge(&t, MS / 10));
}

static void of_two_ranks_the_faster_is_the_measure(void **state)
{
    uint64_t two[] = {90, 30}, three[] = {5, 9, 7}, one[] = {4};
    assert_int_equal(own_time_median(two, 2), 30);
    assert_int_equal(own_time_median(three, 3), 7);
    assert_int_equal(own_time_median(one, 1), 4);
}

static void a_new_process_begins_anew(void **state)
{
    struct own_time t = {0};
    uint64_t ns = 0, steps = 0;
    work(&t, &ns, &steps, 100 * MS, 1);
    work(&t, &ns, &steps, 100 * MS, 20);
    assert_int_equal(t.mean_ns, 100 * MS);
    own_time_take(&t, 5 * MS, 1);
    assert_int_equal(t.mean_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_is_of_a_whole_window),
        cmocka_unit_test(three_windows_make_a_straggler_and_one_less_slow_ends_it),
        cmocka_unit_test(slow_once_is_nothing_and_neither_is_a_tenth_of_a_millisecond),
        cmocka_unit_test(of_two_ranks_the_faster_is_the_measure),
        cmocka_unit_test(a_new_process_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
