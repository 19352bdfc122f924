#include "common/base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_every_status_has_its_own_name(void **state)
{
    for (int i = 0; i < STATUS_COUNT; i++) {
        assert_non_null(status_name(i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(status_name(i), status_name(j));
    }
    assert_string_equal(status_name(STATUS_COUNT), "unknown");
    assert_string_equal(status_name((enum status) - 1), "unknown");
}

static void test_set_and_prefix(void **state)
{
    struct error e;
    assert_int_equal(error_set(&e, STATUS_IO, "port %d", 7000), STATUS_IO);
    assert_int_equal(e.status, STATUS_IO);
    assert_string_equal(e.text, "port 7000");
    assert_int_equal(error_prefix(&e, STATUS_DENIED, "head %s", "a"), STATUS_DENIED);
    assert_int_equal(e.status, STATUS_DENIED);
    assert_string_equal(e.text, "head a: port 7000");
    assert_int_equal(error_set(NULL, STATUS_IO, "x"), STATUS_IO);
    assert_int_equal(error_prefix(NULL, STATUS_IO, "x"), STATUS_IO);
}

/* A text that is too long is cut. It stays inside its array and begins with the new prefix,
 * whatever the lengths. */
static void test_long_texts_are_cut(void **state)
{
    char long_text[1024];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    for (int prefix = 500; prefix < 520; prefix++) {
        struct error e;
        assert_int_equal(error_set(&e, STATUS_LIMIT, "%s", long_text), STATUS_LIMIT);
        assert_int_equal(strlen(e.text), sizeof e.text - 1);
        assert_int_equal(error_prefix(&e, STATUS_LIMIT, "%.*s", prefix, long_text), STATUS_LIMIT);
        assert_in_range(strlen(e.text), 500, sizeof e.text - 1);
        assert_int_equal(e.text[0], 'x');
    }
}

static enum status pass(enum status s, int *reached)
{
    TRY(s);
    ++*reached;
    return STATUS_OK;
}

static void test_try(void **state)
{
    int reached = 0;
    assert_int_equal(pass(STATUS_AGAIN, &reached), STATUS_AGAIN);
    assert_int_equal(reached, 0);
    assert_int_equal(pass(STATUS_OK, &reached), STATUS_OK);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_status_has_its_own_name),
        cmocka_unit_test(test_set_and_prefix),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
