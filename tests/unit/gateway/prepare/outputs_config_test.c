/* Tests `--structured-outputs-config`, and how a schema changes when white space is disabled. */
#include "gateway/prepare/outputs_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"

#define COMPACT "{\"x-guidance\":{\"whitespace_flexible\":false}"

static void test_config(void **state)
{
    static const struct {
        const char *json, *why; /* `why`: part of the error; NULL = the config is accepted */
        bool compact;
    } cases[] = {
        {NULL, NULL, false},
        {"{}", NULL, false},
        {"{\"disable_any_whitespace\":true}", NULL, true},
        {"{\"backend\":\"xgrammar\",\"disable_any_whitespace\":true,\"reasoning_parser\":\"\"}",
         NULL, true},
        {"{\"disable_any_whitespace\":false,\"disable_fallback\":true}", NULL, false},
        {"{\"disable_any_whitespace\":null}", NULL, false},
        {"{\"disable_any_whitespace\":\"yes\"}", "true or false", false},
        {"{\"disable_whitespace\":true}", "unknown key disable_whitespace.", false},
        {"{\"unknown\":1,\"backend\":\"auto\"}", "unknown key unknown.", false},
        {"[]", "the value is JSON, but not an object", false},
        {"{", "--structured-outputs-config must be a JSON object", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outputs_config c;
        struct error err = {0};
        enum status s = outputs_config_read(cases[i].json, &c, &err);
        if ((s == STATUS_OK) != (cases[i].why == NULL) ||
            (cases[i].why ? !strstr(err.text, cases[i].why) : c.compact != cases[i].compact))
            fail_msg("%s: %s", cases[i].json, err.text);
    }
}

static void test_compact(void **state)
{
    static const struct {
        enum grammar_kind kind;
        const char *source, *want;
    } cases[] = {
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}", COMPACT ",\"type\":\"object\"}"},
        {GRAMMAR_JSON_SCHEMA, " {\n\"maximum\":1e999 }", COMPACT ",\"maximum\":1e999 }"},
        {GRAMMAR_JSON_SCHEMA, "{ }", COMPACT "}"},
        {GRAMMAR_JSON_SCHEMA, "{}", COMPACT "}"},
        {GRAMMAR_JSON_SCHEMA, "true", COMPACT "}"},
        /* The client's own member follows in the object, and the later member is valid. */
        {GRAMMAR_JSON_SCHEMA, "{\"x-guidance\":{}}", COMPACT ",\"x-guidance\":{}}"},
        /* A value that is not a schema stays unchanged, so that the compile refuses it. */
        {GRAMMAR_JSON_SCHEMA, "false", "false"},
        {GRAMMAR_JSON_SCHEMA, "", ""},
        {GRAMMAR_JSON_SCHEMA, "{", COMPACT},
        {GRAMMAR_LARK, "{}", "{}"},
        {GRAMMAR_NONE, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct params p = {0};
        struct api_error e = {0};
        p.grammar_field = "response_format";
        p.sampling.grammar_kind = cases[i].kind;
        p.sampling.grammar = str_from(cases[i].source);
        assert_true(outputs_make_compact(&p, &e));
        if (!str_eq_c(p.sampling.grammar, cases[i].want))
            fail_msg("%s: " STR_FMT, cases[i].source, STR_ARG(p.sampling.grammar));
        arena_fini(&p.arena);
    }
}

static void test_what_gets_too_long(void **state)
{
    char *source = malloc(PROTO_MAX_GRAMMAR_BYTES);
    memset(source, ' ', PROTO_MAX_GRAMMAR_BYTES);
    memcpy(source, "{\"a\":1", 6);
    source[PROTO_MAX_GRAMMAR_BYTES - 1] = '}';
    struct params p = {.grammar_field = "response_format"};
    struct api_error e = {0};
    p.sampling.grammar_kind = GRAMMAR_JSON_SCHEMA;
    p.sampling.grammar = (struct str){source, PROTO_MAX_GRAMMAR_BYTES};
    assert_false(outputs_make_compact(&p, &e));
    assert_string_equal(e.param, "response_format");
    assert_non_null(strstr(e.message, "white space"));
    arena_fini(&p.arena);
    free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_config),
                                       cmocka_unit_test(test_compact),
                                       cmocka_unit_test(test_what_gets_too_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
