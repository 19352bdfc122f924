/* Tests that the exit status of a GPU benchmark follows from its figures and their bars. */
#include "bench/gpu/bars.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct bars opened(bool is_emulated, double seconds)
{
    struct bars b;
    bars_open(&b, "some_bench", is_emulated, seconds);
    return b;
}

static void test_verdicts(void **state)
{
    static const struct {
        double value, bar;
        enum bar_kind kind;
        enum bars_status want;
    } cases[] = {
        {0.85, 0.85, BAR_AT_LEAST, BARS_HELD},
        {0.8499, 0.85, BAR_AT_LEAST, BARS_BELOW},
        {5.0, 5.0, BAR_AT_MOST, BARS_HELD},
        {5.01, 5.0, BAR_AT_MOST, BARS_BELOW},
        {0.1, 0, BAR_NONE, BARS_HELD},
        {(double)NAN, 0.85, BAR_AT_LEAST, BARS_BELOW},
        {(double)NAN, 5.0, BAR_AT_MOST, BARS_BELOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bars b = opened(false, 0);
        bars_figure(&b, "held before", "x", 1, BAR_AT_LEAST, 0.5);
        bars_figure(&b, "it", "x", cases[i].value, cases[i].kind, cases[i].bar);
        bars_figure(&b, "held behind", "x", 1, BAR_AT_LEAST, 0.5);
        assert_int_equal(bars_close(&b), cases[i].want);
    }
}

static void test_emulated_is_not_judged(void **state)
{
    struct bars b = opened(true, 0);
    struct gpu_info info = {.name = "emulation on the host"};
    bars_figure(&b, "slow", "x", 0.001, BAR_AT_LEAST, 0.85);
    assert_int_equal(bars_close(&b), BARS_HELD);
    assert_true(bars_is_emulated(&info));
    snprintf(info.name, sizeof info.name, "NVIDIA H200");
    assert_false(bars_is_emulated(&info));
}

/* A figure that has a bar and was not measured counts as missed. A figure without a bar may be
 * left out. */
static void test_cut(void **state)
{
    struct bars b = opened(false, 100);
    assert_true(bars_has_time(&b, "first", 10, true));
    assert_true(bars_seconds_left(&b) > 90 && bars_seconds_left(&b) <= 100);
    assert_false(bars_has_time(&b, "plain", 200, false));
    assert_int_equal(bars_close(&b), BARS_HELD);
    assert_false(bars_has_time(&b, "judged", 200, true));
    assert_int_equal(bars_close(&b), BARS_CUT);
    bars_figure(&b, "slow", "x", 0.1, BAR_AT_LEAST, 0.85);
    assert_int_equal(bars_close(&b), BARS_BELOW);
    b = opened(false, 0);
    assert_true(bars_has_time(&b, "no budget", 1e9, true));
    bars_cut(&b, "does not fit", true);
    assert_int_equal(bars_close(&b), BARS_CUT);
}

static void test_too_many(void **state)
{
    struct bars b = opened(false, 0);
    for (int i = 0; i < BARS_MAX; i++)
        bars_figure(&b, "fine", "x", 1, BAR_AT_LEAST, 0.5);
    assert_int_equal(bars_close(&b), BARS_HELD);
    bars_figure(&b, "one more", "x", 1, BAR_AT_LEAST, 0.5);
    assert_int_equal(bars_close(&b), BARS_BELOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_emulated_is_not_judged),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
