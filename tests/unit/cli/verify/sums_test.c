/* Tests the reader of lists of SHA-256 sums with hostile lists. */
#include "cli/verify/sums.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_good(void **state)
{
    struct sums s;
    struct error err;
    const char *list = HEX "  bin/cox\n" HEX " *lib/coxswain/libx.so.1\n" HEX "  ./a b\n";
    assert_int_equal(sums_parse(str_from(list), &s, &err), STATUS_OK);
    assert_int_equal(s.n_items, 3);
    assert_true(str_eq(s.items[0].path, STR("a b")));
    assert_true(str_eq(s.items[1].path, STR("bin/cox")));
    assert_true(str_eq(sums_find(&s, STR("lib/coxswain/libx.so.1"))->hex, STR(HEX)));
    assert_null(sums_find(&s, STR("bin")));
    assert_null(sums_find(&s, STR("")));
    sums_fini(&s);
    assert_null(sums_find(&s, STR("bin/cox")));
}

static void test_wrong(void **state)
{
    static const char *const lists[][2] = {
        {"", "the list is empty"},
        {"\n", "line 1 is not"},
        {HEX "  bin/cox", "ends in the middle of line 1"},
        {HEX "  bin/cox\n" HEX "  bin/co", "ends in the middle of line 2"},
        {HEX "  /etc/passwd\n", "line 1 is not"},
        {HEX "  ../x\n", "line 1 is not"},
        {HEX "  bin/../../x\n", "line 1 is not"},
        {HEX "  bin/..\n", "line 1 is not"},
        {HEX "  bin//cox\n", "line 1 is not"},
        {HEX "  bin/./cox\n", "line 1 is not"},
        {HEX "  bin/\n", "line 1 is not"},
        {HEX "  .\n", "line 1 is not"},
        {HEX "  ./\n", "line 1 is not"},
        {HEX "  ././cox\n", "line 1 is not"},
        {HEX "  \n", "line 1 is not"},
        {HEX " bin/cox\n", "line 1 is not"},
        {HEX "\tbin/cox\n", "line 1 is not"},
        {HEX "  bin/c\033[2Jox\n", "line 1 is not"},
        {HEX "  bin/c\xc3\xb6x\n", "line 1 is not"},
        {HEX "  bin/cox\r\n", "line 1 is not"},
        {"\\" HEX "  bin/cox\n", "line 1 is not"},
        {"0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef  x\n", "line 1 is not"},
        {"0123456789abcdef0123456789abcdef  bin/cox\n", "line 1 is not"},
        {HEX "  a\n" HEX "  b\n" HEX "  a\n", "the path \"a\" twice"},
        {HEX "  a\n" HEX "  ./a\n", "the path \"a\" twice"},
    };
    struct sums s;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct error err = {0};
        if (sums_parse(str_from(lists[i][0]), &s, &err) == STATUS_OK ||
            !strstr(err.text, lists[i][1]))
            fail_msg("list %zu: %s", i, err.text);
        assert_null(s.items);
    }
    struct error err = {0};
    struct str nul = {HEX "  bin/c\0x\n", 64 + 2 + 8};
    assert_int_equal(sums_parse(nul, &s, &err), STATUS_INVALID);
}

static void test_sizes(void **state)
{
    struct sums s;
    struct strbuf b;
    struct error err = {0};
    strbuf_init(&b, 0);
    for (int i = 0; i < SUMS_LINES_MAX; i++)
        strbuf_printf(&b, HEX "  f/%d\n", i);
    assert_int_equal(sums_parse(strbuf_str(&b), &s, &err), STATUS_OK);
    assert_int_equal(s.n_items, SUMS_LINES_MAX);
    for (size_t i = 1; i < s.n_items; i++)
        assert_true(str_compare(s.items[i - 1].path, s.items[i].path) < 0);
    sums_fini(&s);
    strbuf_append_c(&b, HEX "  one-more\n");
    assert_int_equal(sums_parse(strbuf_str(&b), &s, &err), STATUS_LIMIT);
    strbuf_reset(&b);
    strbuf_append_c(&b, HEX "  ");
    for (int i = 0; i < SUMS_PATH_MAX; i++)
        strbuf_append_c(&b, "p");
    strbuf_append_c(&b, "\n");
    assert_int_equal(sums_parse(strbuf_str(&b), &s, &err), STATUS_OK);
    sums_fini(&s);
    strbuf_reset(&b);
    strbuf_append_c(&b, HEX "  ");
    for (int i = 0; i <= SUMS_PATH_MAX; i++)
        strbuf_append_c(&b, "p");
    strbuf_append_c(&b, "\n");
    assert_int_equal(sums_parse(strbuf_str(&b), &s, &err), STATUS_INVALID);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
