/* Tests model_golden's text about checks beyond their bounds. A person is asked to judge checks
 * that are near their bound. Checks that are far from it, or that rounding does not explain,
 * have failed for certain. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/golden/golden_math.h"

static const char *text_of(const struct golden_excess *x)
{
    static char text[256];
    golden_excess_text(x, text, sizeof text);
    return text;
}

static void test_nothing_failed(void **state)
{
    const struct golden_excess x = {0};
    assert_string_equal(text_of(&x), "");
}

static void test_near(void **state)
{
    struct golden_excess x = {0};
    golden_excess_add(&x, 0.0655, 0.065);
    golden_excess_add(&x, 0.114, 0.1);
    assert_int_equal(x.n_near, 2);
    assert_int_equal(x.n_far, 0);
    assert_non_null(strstr(text_of(&x), "2 beyond their bounds by at most 14 %: within"));
    assert_non_null(strstr(text_of(&x), "judged by hand"));
}

static void test_far(void **state)
{
    struct golden_excess x = {0};
    golden_excess_add(&x, 0.101, 0.1);
    golden_excess_add(&x, 0.116, 0.1);
    assert_int_equal(x.n_near, 1);
    assert_int_equal(x.n_far, 1);
    assert_non_null(
        strstr(text_of(&x), "2 beyond their bounds, 1 of them FAR beyond, by up to 16 %"));
    assert_null(strstr(text_of(&x), "by hand"));
}

static void test_no_number(void **state)
{
    const double values[] = {(double)NAN, (double)INFINITY};
    for (size_t i = 0; i < 2; i++) {
        struct golden_excess x = {0};
        golden_excess_add(&x, values[i], 0.1);
        assert_int_equal(x.n_far, 1);
        assert_non_null(strstr(text_of(&x), "FAR"));
    }
}

static void test_no_rounding(void **state)
{
    struct golden_excess x = {.n_other = 1};
    assert_string_equal(text_of(&x), "1 that no rounding explains");
    golden_excess_add(&x, 0.11, 0.1);
    assert_non_null(strstr(text_of(&x), "by hand, and 1 that no rounding explains"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_failed),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_no_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
