/* Tests `struct str` and `struct strbuf`: search, comparison, numbers, trimming, growth,
 * formatting and UTF-8. Each test calls the functions with a table of texts. No function may
 * read past the end of a `str`, which need not end with a NUL. A failed append must leave a
 * `strbuf` unchanged. */
#include "common/base/str.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/config/distance.h"

static void test_compare(void **state)
{
    assert_true(str_eq(STR("ab"), STR("ab")));
    assert_false(str_eq(STR("ab"), STR("ac")));
    assert_false(str_eq(STR("ab"), STR("abc")));
    assert_true(str_eq((struct str){NULL, 0}, STR("")));
    assert_true(str_eq_c(STR("a"), "a"));
    assert_true(str_eq_c(str_from(NULL), ""));
    assert_false(str_eq_c(STR("a\0b"), "a"));
    assert_true(str_compare(STR("ab"), STR("ab")) == 0);
    assert_true(str_compare(STR("ab"), STR("abc")) < 0);
    assert_true(str_compare(STR("b"), STR("abc")) > 0);
    assert_true(str_compare(STR("a\xFF"), STR("ab")) > 0);
    assert_true(str_compare((struct str){NULL, 0}, STR("")) == 0);
    assert_true(str_starts(STR("abc"), STR("ab")));
    assert_true(str_starts(STR("abc"), STR("")));
    assert_false(str_starts(STR("ab"), STR("abc")));
}

/* The cases follow RFC 3629: the first and last character of each length, overlong forms and
 * surrogates. */
static void test_utf8(void **state)
{
    static const struct {
        const char *bytes;
        size_t len, valid;
    } cases[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"a\0b", 3, 3},
        {"\x7f", 1, 1},
        {"\x80", 1, 0},             /* a continuation byte without a lead byte */
        {"\xc0\x80", 2, 0},         /* an overlong form of NUL */
        {"\xc1\xbf", 2, 0},         /* an overlong form of U+007F */
        {"\xc2\x80", 2, 2},         /* U+0080, the first character of two bytes */
        {"\xdf\xbf", 2, 2},         /* U+07FF, the last character of two bytes */
        {"\xe0\x9f\xbf", 3, 0},     /* an overlong form of U+07FF */
        {"\xe0\xa0\x80", 3, 3},     /* U+0800, the first character of three bytes */
        {"\xed\x9f\xbf", 3, 3},     /* U+D7FF, the last character before the surrogates */
        {"\xed\xa0\x80", 3, 0},     /* U+D800, the first surrogate */
        {"\xed\xbf\xbf", 3, 0},     /* U+DFFF, the last surrogate */
        {"\xee\x80\x80", 3, 3},     /* U+E000, the first character after the surrogates */
        {"\xef\xbf\xbf", 3, 3},     /* U+FFFF, the last character of three bytes */
        {"\xf0\x8f\xbf\xbf", 4, 0}, /* an overlong form of U+FFFF */
        {"\xf0\x90\x80\x80", 4, 4}, /* U+10000, the first character of four bytes */
        {"\xf4\x8f\xbf\xbf", 4, 4}, /* U+10FFFF, the last character of Unicode */
        {"\xf4\x90\x80\x80", 4, 0}, /* U+110000, which is above the last character */
        {"\xf5\x80\x80\x80", 4, 0}, /* a byte that cannot begin a character */
        {"\xfe", 1, 0},
        {"\xff", 1, 0},
        {"ab\xe2\x82", 4, 2},     /* a euro sign whose last byte is missing */
        {"ab\xe2\x82\xac", 5, 5}, /* a complete euro sign */
        {"\xe2\x28\xa1", 3, 0},   /* a wrong second byte */
        {"\xe2\x82\x28", 3, 0},   /* a wrong third byte */
        {"\xf0\x9f\x98\x80z\xff", 6, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* the copy has the exact size, so that a sanitizer reports a read past the end */
        char *exact = malloc(cases[i].len ? cases[i].len : 1);
        assert_non_null(exact);
        memcpy(exact, cases[i].bytes, cases[i].len);
        size_t got = str_utf8_valid((struct str){exact, cases[i].len});
        free(exact);
        if (got != cases[i].valid)
            print_error("case %zu\n", i);
        assert_int_equal(got, cases[i].valid);
    }
}

static void test_json_escapes(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *want;
    } cases[] = {
        {"", 0, "\"\""},
        {"a/b", 3, "\"a/b\""},
        {"\"\\", 2, "\"\\\"\\\\\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x01\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\\u007f\""},
        {"\xc3\xa9", 2, "\"\xc3\xa9\""},
        {"\xff"
         "a",
         2,
         "\"\xef\xbf\xbd"
         "a\""},
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xe2\x82", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        assert_true(strbuf_append_json(&b, (struct str){cases[i].bytes, cases[i].len}));
        assert_string_equal(b.ptr, cases[i].want);
        assert_int_equal(b.len, strlen(cases[i].want));
        strbuf_fini(&b);
    }
}

static void test_whole_numbers(void **state)
{
    static const struct {
        const char *text;
        enum status u, i;
        uint64_t u_want;
        int64_t i_want;
    } cases[] = {
        {"0", STATUS_OK, STATUS_OK, 0, 0},
        {"007", STATUS_OK, STATUS_OK, 7, 7},
        {"18446744073709551615", STATUS_OK, STATUS_LIMIT, UINT64_MAX, 0},
        {"18446744073709551616", STATUS_LIMIT, STATUS_LIMIT, 0, 0},
        {"99999999999999999999999", STATUS_LIMIT, STATUS_LIMIT, 0, 0},
        {"9223372036854775807", STATUS_OK, STATUS_OK, INT64_MAX, INT64_MAX},
        {"9223372036854775808", STATUS_OK, STATUS_LIMIT, 1ull << 63, 0},
        {"-9223372036854775808", STATUS_INVALID, STATUS_OK, 0, INT64_MIN},
        {"-9223372036854775809", STATUS_INVALID, STATUS_LIMIT, 0, 0},
        {"-1", STATUS_INVALID, STATUS_OK, 0, -1},
        {"", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"-", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"--1", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"+1", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {" 1", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"1 ", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"1x", STATUS_INVALID, STATUS_INVALID, 0, 0},
        {"0x1", STATUS_INVALID, STATUS_INVALID, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t u = 0;
        int64_t v = 0;
        assert_int_equal(str_to_u64(str_from(cases[i].text), &u), cases[i].u);
        assert_int_equal(str_to_i64(str_from(cases[i].text), &v), cases[i].i);
        assert_true(u == cases[i].u_want);
        assert_true(v == cases[i].i_want);
    }
}

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        enum status want;
        double value;
    } cases[] = {
        {"1.5", STATUS_OK, 1.5},      {"-0.25", STATUS_OK, -0.25}, {"1e3", STATUS_OK, 1000},
        {".5", STATUS_OK, 0.5},       {"7", STATUS_OK, 7},         {"", STATUS_INVALID, 0},
        {"1e999", STATUS_INVALID, 0}, {"nan", STATUS_INVALID, 0},  {"inf", STATUS_INVALID, 0},
        {"-inf", STATUS_INVALID, 0},  {"+nan", STATUS_INVALID, 0}, {"0x10", STATUS_INVALID, 0},
        {"1.5 ", STATUS_INVALID, 0},  {" 1", STATUS_INVALID, 0},   {"1,5", STATUS_INVALID, 0},
        {"1e", STATUS_INVALID, 0},    {"e5", STATUS_INVALID, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double d = 0;
        if (str_to_f64(str_from(cases[i].text), &d) != cases[i].want)
            print_error("case %zu: %s\n", i, cases[i].text);
        assert_int_equal(str_to_f64(str_from(cases[i].text), &d), cases[i].want);
        assert_true(fabs(d - cases[i].value) < 1e-12);
    }
    double d = 0;
    assert_int_equal(str_to_f64((struct str){"1\0", 2}, &d), STATUS_INVALID);
}

static void test_strbuf_grows_and_consumes(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    assert_string_equal(strbuf_str(&b).ptr, "");
    for (int i = 0; i < 1000; i++)
        assert_true(strbuf_printf(&b, "%03d,", i));
    assert_int_equal(b.len, 4000);
    assert_int_equal(b.ptr[b.len], '\0');
    strbuf_consume(&b, 0);
    strbuf_consume(&b, 4 * 998);
    assert_string_equal(b.ptr, "998,999,");
    strbuf_consume(&b, 100);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.ptr, "");
    strbuf_reset(&b);
    assert_true(strbuf_append_str(&b, STR("again")));
    assert_string_equal(b.ptr, "again");
    strbuf_fini(&b);
}

static void test_numbers_in_decimal(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    assert_true(strbuf_append_u64(&b, 0));
    assert_true(strbuf_append_u64(&b, 907));
    assert_true(strbuf_append_u64(&b, UINT64_MAX));
    assert_string_equal(b.ptr, "090718446744073709551615");
    strbuf_fini(&b);
}

static void test_strbuf_limit_is_exact_and_sticky(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 8);
    assert_true(strbuf_append(&b, "12345678", 8));
    assert_false(b.failed);
    assert_false(strbuf_append(&b, "9", 1));
    assert_true(b.failed);
    assert_false(strbuf_append(&b, "", 0));
    assert_string_equal(b.ptr, "12345678");
    strbuf_reset(&b);
    assert_true(strbuf_append_c(&b, "x"));
    assert_false(strbuf_printf(&b, "%s", "too long now"));
    assert_false(strbuf_append_json(&b, STR("y")));
    assert_string_equal(b.ptr, "x");
    strbuf_fini(&b);
    strbuf_init(&b, 8);
    assert_false(strbuf_append(&b, "x", SIZE_MAX - 4)); /* the sum of sizes would overflow */
    strbuf_fini(&b);
}

static void test_distance(void **state)
{
    static const struct {
        const char *a, *b;
        size_t want;
    } cases[] = {
        {"", "", 0},       {"", "abc", 3},        {"abc", "", 3},           {"abc", "abc", 0},
        {"abc", "axc", 1}, {"abc", "acb", 1},     {"abc", "abcd", 1},       {"abcd", "bcd", 1},
        {"ca", "abc", 3},  {"drian", "drain", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1},
    };
    char big[80];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(str_distance(str_from(cases[i].a), str_from(cases[i].b)), cases[i].want);
        assert_int_equal(str_distance(str_from(cases[i].b), str_from(cases[i].a)), cases[i].want);
    }
    memset(big, 'x', sizeof big);
    assert_int_equal(str_distance((struct str){big, 64}, (struct str){big, 60}), 4);
    assert_true(str_distance((struct str){big, 65}, STR("x")) == SIZE_MAX);
}

static void test_ends_and_blanks(void **state)
{
    static const struct {
        const char *in, *blanks, *want;
    } cases[] = {
        {"", " ", ""},         {"  ", " ", ""},      {"a", " ", "a"},
        {" a b ", " ", "a b"}, {"\ta ", " ", "\ta"}, {"\r\na\t", " \t\r\n", "a"},
        {" a ", "", " a "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!str_eq_c(str_trim(str_from(cases[i].in), cases[i].blanks), cases[i].want))
            fail_msg("case %zu", i);
    assert_int_equal(str_trim((struct str){"\0a", 2}, " ").len, 2); /* a NUL is not a blank */
    assert_true(str_ends(STR("abc"), STR("bc")));
    assert_true(str_ends(STR("abc"), STR("")));
    assert_false(str_ends(STR("bc"), STR("abc")));
    assert_false(str_ends(STR("abc"), STR("ab")));
}

static void test_copies_are_cut(void **state)
{
    char out[4];
    memset(out, 'x', sizeof out);
    str_copy(out, sizeof out, STR("ab"));
    assert_string_equal(out, "ab");
    str_copy(out, sizeof out, STR("abcdef"));
    assert_string_equal(out, "abc");
    str_copy(out, sizeof out, (struct str){NULL, 0});
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_ends_and_blanks),
        cmocka_unit_test(test_copies_are_cut),
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_json_escapes),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strbuf_grows_and_consumes),
        cmocka_unit_test(test_numbers_in_decimal),
        cmocka_unit_test(test_strbuf_limit_is_exact_and_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
