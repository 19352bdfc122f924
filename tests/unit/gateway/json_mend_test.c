/* Text that is JSON goes through byte for byte; all other text becomes JSON, the same whole and
 * byte by byte. */
#include "gateway/json_mend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/json_text.h"

static void mend(struct str text, size_t step, struct strbuf *out)
{
    struct json_mend m = {0};
    strbuf_init(out, 0);
    for (size_t i = 0; i < text.len; i += step) {
        const size_t n = text.len - i < step ? text.len - i : step;
        json_mend_feed(&m, (struct str){text.ptr + i, n}, out);
    }
    json_mend_end(&m, out);
}

static void expect(struct str text, struct str want)
{
    for (size_t step = 1; step < 4; step++) {
        struct strbuf out;
        mend(text, step == 3 ? text.len + 1 : step, &out);
        if (!str_eq(strbuf_str(&out), want))
            fail_msg("%.*s became %.*s", (int)text.len, text.ptr, (int)out.len, out.ptr);
        strbuf_fini(&out);
    }
}

static void json_is_kept(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "null",
        "-0",
        "\"\"",
        "{ \"a\" : [ 1 , 2.5e-3 , { } ] , \"b\" : null }",
        "{\"a\":\"\\u00e9\\n\\\\\\\"'\",\"b\":[true,false],\"c\":{\"d\":-0.0E+10}}",
        "[[[[0]], \"\\ud83d\\ude00\"], 1e0]",
        "\"{\\\"a\\\": 1}\"",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect(str_from(texts[i]), str_from(texts[i]));
}

static void other_text_becomes_json(void **state)
{
    static const char *const pairs[][2] = {
        {"", "{}"},
        {"{", "{}"},
        {"{\"a\"", "{\"a\": null}"},
        {"{\"a\":", "{\"a\":null}"},
        {"{\"a\": \"b", "{\"a\": \"b\"}"},
        {"{\"a\": \"b\\", "{\"a\": \"b\\\\\"}"},
        {"{\"a\": \"\\u12", "{\"a\": \"\\\\u12\"}"},
        {"{\"a\": [1, {\"b\": tr", "{\"a\": [1, {\"b\": \"tr\"}]}"},
        {"{'a': True, b: None,}", "{\"a\": true, \"b\": null}"},
        {"{'it': 'say \"hi\" \\'x\\''}", "{\"it\": \"say \\\"hi\\\" 'x'\"}"},
        {"{\"a\": \"x\ny\tz\"}", "{\"a\": \"x\\ny\\tz\"}"},
        {"{\"a\": \"\\d\\x41\"}", "{\"a\": \"\\\\d\\\\x41\"}"},
        {"[1,,2,]", "[1,2]"},
        {"[,1 2 \"x\" x]", "[1 , 2 , \"x\" , \"x\"]"},
        {"{\"a\" 1 \"b\":2}", "{\"a\" : 1 , \"b\":2}"},
        {"{\"a\",\"b\"}", "{\"a\": null,\"b\": null}"},
        {"{\"a\": 1 what \"b\": 2}", "{\"a\": 1  , \"b\": 2}"},
        {"{\"a\": [1}", "{\"a\": [1]}"},
        {"[1}]", "[1]"},
        {"[007, +1, .5, 1., 1e, 2e+, -, 1a, -Infinity, NaN]",
         "[7, 1, 0.5, 1.0, 1e0, 2e+0, \"-\", 1, \"-Infinity\", \"NaN\"]"},
        {"print(\"a\")", "\"print(\\\"a\\\")\""},
        {"not json\n", "\"not json\\n\""},
        {"nul", "\"nul\""},
        {"{\"a\": 1} and more", "{\"a\": 1}"},
        {"{[1]: {2}}", "{\"\": [1] , \"\": {\"2\": null}}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        expect(str_from(pairs[i][0]), str_from(pairs[i][1]));
}

static void too_deep_is_closed(void **state)
{
    enum { N = JSON_MEND_MAX_DEPTH + 100 };
    static char text[N];
    struct strbuf out;
    size_t depth = 0;
    (void)state;
    memset(text, '[', sizeof text);
    mend((struct str){text, sizeof text}, 7, &out);
    while (out.ptr[depth] == '[')
        depth++;
    assert_int_equal(depth, JSON_MEND_MAX_DEPTH);
    assert_int_equal(out.len, 2 * depth + strlen("null"));
    strbuf_fini(&out);
}

/* A generator of its own, so that a failure comes again. */
static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void any_bytes_become_json(void **state)
{
    static const char *const pieces[] = {
        "{",   "}",  "[",  "]",      ",",      ":",        "\"", "'",    "\\",   "\\u00",
        "0",   "12", "-",  "+",      ".",      "e",        "E1", "true", "fals", "None",
        "x y", " ",  "\n", "\"k\":", "\"v\",", "{\"a\":[", "\t", "=",    "é",
    };
    uint32_t seed = 20240607;
    (void)state;
    for (int run = 0; run < 50000; run++) {
        struct strbuf text, whole, single;
        strbuf_init(&text, 0);
        for (uint32_t n = next_random(&seed) % 24; n > 0; n--)
            strbuf_append_c(&text, pieces[next_random(&seed) % (sizeof pieces / sizeof *pieces)]);
        mend(strbuf_str(&text), text.len + 1, &whole);
        mend(strbuf_str(&text), 1, &single);
        if (!json_text_is_whole(strbuf_str(&whole)))
            fail_msg("%.*s became %.*s", (int)text.len, text.ptr, (int)whole.len, whole.ptr);
        assert_true(str_eq(strbuf_str(&whole), strbuf_str(&single)));
        if (json_text_is_whole(strbuf_str(&text)) && whole.len != 2)
            assert_true(str_starts(strbuf_str(&text), strbuf_str(&whole)));
        strbuf_fini(&text);
        strbuf_fini(&whole);
        strbuf_fini(&single);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_kept),
        cmocka_unit_test(other_text_becomes_json),
        cmocka_unit_test(too_deep_is_closed),
        cmocka_unit_test(any_bytes_become_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
