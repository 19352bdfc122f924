/* Tests the accounts of processor time that tenants' compiles take. The tests check when a
 * tenant counts as heavy, how time is forgotten, and how many accounts there are. */
#include "gateway/compile/debts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS  1000000ull
#define SEC 1000000000ull

static void test_heavy_and_forgotten(void **state)
{
    struct compile_debts d = {0};
    assert_false(compile_debts_is_heavy(&d, 7, SEC));
    for (int i = 0; i < 10; i++)
        compile_debts_add(&d, 7, 49 * MS, SEC);
    assert_false(compile_debts_is_heavy(&d, 7, SEC));
    compile_debts_add(&d, 7, 11 * MS, SEC);
    assert_true(compile_debts_is_heavy(&d, 7, SEC));
    assert_false(compile_debts_is_heavy(&d, 8, SEC));
    assert_false(compile_debts_is_heavy(&d, 7, 2 * SEC));
    compile_debts_add(&d, 7, 4 * SEC, SEC);
    assert_true(compile_debts_is_heavy(&d, 7, 30 * SEC));
    /* the debt was 4.5 s and was halved 3.2 times */
    assert_false(compile_debts_is_heavy(&d, 7, 33 * SEC));
}

/* A tenant with a compile of 30 ms in each second is never heavy. A tenant with 50 ms in each
 * second is heavy. */
static void test_a_part_of_a_core(void **state)
{
    struct compile_debts d = {0};
    for (uint64_t s = 1; s < 600; s++) {
        compile_debts_add(&d, 1, 30 * MS, s * SEC);
        compile_debts_add(&d, 2, 50 * MS, s * SEC);
        assert_false(compile_debts_is_heavy(&d, 1, s * SEC));
    }
    assert_true(compile_debts_is_heavy(&d, 2, 600 * SEC));
}

static void test_the_least_is_forgotten(void **state)
{
    struct compile_debts d = {0};
    compile_debts_add(&d, 1, SEC, SEC);
    for (uint64_t t = 2; t < 1000; t++)
        compile_debts_add(&d, t, MS, SEC);
    assert_true(compile_debts_is_heavy(&d, 1, SEC));
    for (uint64_t t = 1000; t < 1000 + COMPILE_DEBTS_KEPT; t++)
        compile_debts_add(&d, t, 2 * SEC, SEC);
    assert_false(compile_debts_is_heavy(&d, 1, SEC));
    assert_true(compile_debts_is_heavy(&d, 1001, SEC));
    compile_debts_add(&d, 1001, 0, 0); /* the clock jumps back here */
    assert_true(compile_debts_is_heavy(&d, 1001, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heavy_and_forgotten),
        cmocka_unit_test(test_a_part_of_a_core),
        cmocka_unit_test(test_the_least_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
