/* Tests the natural order of names, in which "a9" is before "a10". */
#include "cli/base/natural.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static void test_order(void **state)
{
    static const char *const in_order[] = {
        "",         "2",        "10",        "a",         "a1b",
        "a2",       "a2b",      "a10",       "node-1-9",  "node-1-10",
        "node-2-1", "worker-2", "worker-02", "worker-10", "worker-123456789012345678901",
        "workers",
    };
    enum { N = sizeof in_order / sizeof in_order[0] };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            int want = (i > k) - (i < k), got = sign(natural_compare(in_order[i], in_order[k]));
            bool same_number = (i == 11 && k == 12) || (i == 12 && k == 11);
            if (got != want && !same_number)
                fail_msg("\"%s\" and \"%s\": %d", in_order[i], in_order[k], got);
        }
    assert_int_not_equal(natural_compare("worker-2", "worker-02"), 0);
    assert_int_equal(sign(natural_compare("worker-2", "worker-02")),
                     -sign(natural_compare("worker-02", "worker-2")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
