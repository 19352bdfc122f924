/* Tests that numbers of any size pass through jansson's tree and back unchanged. */
#include "common/json/bytes.h"
#include "common/json/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *through(const char *text, size_t flags)
{
    json_error_t e;
    json_t *v = json_text_load(str_from(text), JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("%s: %s", text, e.text);
    char *out = json_text_dump(v, JSON_COMPACT | JSON_ENCODE_ANY | flags);
    json_decref(v);
    assert_non_null(out);
    return out;
}

static void test_round(void **state)
{
    static const char *const same[] = {
        "18446744073709551615",
        "[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]",
        "{\"a\":12345678901234567890123,\"b\":[1e400,-1E+999],\"c\":\"12345678901234567890123\"}",
        "{\"1e400\":\"a\\\"1e400\",\"b\\\\\":1e400}",
        "[0,-1,true,null,\"\"]",
        "[1e400,\"x\",1e400]",
        "\"\xEF\xB7\x90number\"",
        "{\"\xEF\xB7\x90number\":\"a\"}",
        "{\"\xEF\xB7\x90number\":\"12a\"}",
        "{\"\xEF\xB7\x90number\":\"01\"}",
        "{\"\xEF\xB7\x90number\":12,\"a\":1e400}",
        "{\"\xEF\xB7\x90number\":\"1\",\"a\":1e400}",
        "[{\"\xEF\xB7\x90number\":{\"\xEF\xB7\x90number\":1e400}}]",
        "[\"{\\\"\xEF\xB7\x90number\\\":\\\"1\\\"}\"]",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *got = through(same[i], i == 2 ? JSON_PRESERVE_ORDER : 0);
        assert_string_equal(got, same[i]);
        free(got);
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {"[01]",
                                      "[-]",
                                      "[1.]",
                                      "[1e]",
                                      "[.5]",
                                      "[+1]",
                                      "[1e400",
                                      "1e400 2",
                                      "",
                                      "[--1]",
                                      "[00000000000000000000000001]",
                                      "[1e400x]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_error_t e;
        if (json_text_load(str_from(bad[i]), JSON_DECODE_ANY, &e))
            fail_msg("%s was taken", bad[i]);
    }
}

static void test_is_number(void **state)
{
    json_t *v = json_text_load(STR("[1e400,18446744073709551615,1,\"1e400\"]"), 0, NULL);
    static const bool want[] = {true, true, false, false};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_text_is_number(json_array_get(v, i)), want[i]);
    assert_false(json_text_is_number(NULL));
    json_decref(v);
    /* a number alone is neither an object nor an array */
    assert_null(json_text_load(STR("1e400"), 0, NULL));
}

/* A body with many numbers that the tree cannot hold must be read in time linear in its length. */
static void test_many(void **state)
{
    enum { COUNT = 20000 };
    char *text = malloc(COUNT * 8 + 8), *at = text;
    *at++ = '[';
    for (int i = 0; i < COUNT; i++)
        at += sprintf(at, "%s1e400", i ? "," : "");
    *at++ = ']';
    *at = '\0';
    char *got = through(text, 0);
    assert_string_equal(got, text);
    free(got);
    free(text);
}

static void test_is_whole(void **state)
{
    static const char *const whole[] = {
        "{}",       " [] ",   "[1, -2.5e3]",     "{\"a\": [{\"b\": null}], \"c\": \"\"}",
        "\"\\/\"",  "1e400",  "\"\\ud800\"",     "123456789012345678901234567890",
        "[[], {}]", "  true", "[\"\\u0000\\b\"]"};
    static const char *const none[] = {
        "",          " ",          "[1,]",     "[,1]", "{\"a\"}",     "{a: 1}",  "[1 2]",
        "[1]{",      "[1,2",       "{\"a\":}", "[01]", "\"\\x41\"",   "\"a\n\"", "[}",
        "{]",        "{\"a\":1,}", "nulll",    "1,2",  "\"\\u12g4\"", "'a'",     "[1,,2]",
        "{\"a\" 1}", "+1",         "\"a"};
    char deep[2 * JSON_TEXT_MAX_DEPTH + 2];
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!json_text_is_whole(str_from(whole[i])))
            fail_msg("%s is JSON", whole[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (json_text_is_whole(str_from(none[i])))
            fail_msg("%s is no JSON", none[i]);
    memset(deep, '[', sizeof deep / 2);
    memset(deep + sizeof deep / 2, ']', sizeof deep / 2);
    assert_true(json_text_is_whole((struct str){deep + 1, sizeof deep - 2}));
    assert_false(json_text_is_whole((struct str){deep, sizeof deep}));
}

/* `n_held` counts the bytes that jansson holds now, with malloc's overhead for each block. Each
 * block's size is stored before the block. */
static uint64_t n_held;

static uint64_t block_of(size_t n)
{
    const uint64_t whole = (n + 8 + 15) / 16 * 16;
    return whole > 32 ? whole : 32;
}

static void *counted_malloc(size_t n)
{
    size_t *p = malloc(n + 16);
    if (!p)
        return NULL;
    *p = n;
    n_held += block_of(n);
    return (char *)p + 16;
}

static void counted_free(void *p)
{
    size_t *at = p ? (size_t *)((char *)p - 16) : NULL;
    n_held -= at ? block_of(*at) : 0;
    free(at);
}

static void test_bytes(void **state)
{
    static const char *const items[] = {
        "{}",
        "[]",
        "\"\"",
        "\"some text that is longer than one block of malloc has room for\"",
        "1",
        "1.5",
        "1e400",
        "true",
        "{\"a\":{\"type\":\"integer\",\"description\":\"a number\",\"enum\":[1,2,3]}}",
        "[[[[[[[[[[{}]]]]]]]]]]",
        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8}",
        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9}",
    };
    json_set_alloc_funcs(counted_malloc, counted_free);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        for (size_t k = 0; k < 1000; k++)
            strbuf_printf(&b, "%s%s", k ? "," : "[", items[i]);
        strbuf_append_c(&b, "]");
        json_t *v = json_text_load(strbuf_str(&b), 0, NULL);
        assert_non_null(v);
        const uint64_t said = json_bytes(v), held = n_held;
        if (said < held || said > held + held / 8)
            fail_msg("%s: said %llu, holds %llu", items[i], (unsigned long long)said,
                     (unsigned long long)held);
        json_decref(v);
        assert_int_equal(n_held, 0);
        strbuf_fini(&b);
    }
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(json_bytes(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_is_number), cmocka_unit_test(test_many),
        cmocka_unit_test(test_is_whole),  cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
