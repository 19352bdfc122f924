/* Tests `tool_types`: which JSON types a schema allows for a parameter, and how a model's text
 * becomes a value of such a type. The input is a schema and a text. The output is a set of types
 * or a piece of JSON. Invariant: a text that is not valid for an allowed type stays a string,
 * and bad schemas cost bounded time. */
#include "gateway/answer/tool_types.h"
#include "gateway/parsers/tool_parsers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/answer/answer.h"

enum {
    N = TOOL_NULL,
    I = TOOL_INTEGER,
    F = TOOL_NUMBER,
    B = TOOL_BOOLEAN,
    O = TOOL_OBJECT,
    A = TOOL_ARRAY,
    S = TOOL_STRING
};

/* `type_cases` lists schemas of the parameter "a" and the types that they allow. `$defs` is next
 * to "a". */
static const struct {
    const char *schema;
    uint32_t types;
} type_cases[] = {
    {"{}", 0},
    {"true", 0},
    {"{\"description\": \"x\"}", 0},
    {"{\"type\": \"string\"}", S},
    {"{\"type\": \"integer\"}", I},
    {"{\"type\": \" Int \"}", I},
    {"{\"type\": \"float\"}", F},
    {"{\"type\": \"dict\"}", O},
    {"{\"type\": \"unheard\"}", 0},
    {"{\"type\": [\"string\", \"null\"]}", S | N},
    {"{\"type\": [\"integer\", 7, \"string\"]}", I | S},
    {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", S | N},
    {"{\"oneOf\": [{\"type\": \"integer\"}]}", I},
    {"{\"anyOf\": [{\"type\": \"integer\"}, {}]}", I | S},
    {"{\"allOf\": [{\"type\": \"integer\"}]}", I},
    {"{\"allOf\": [{\"minimum\": 1}, {\"type\": \"number\"}]}", F},
    {"{\"allOf\": [{\"type\": \"number\"}, {\"type\": \"integer\"}]}", I},
    {"{\"allOf\": [{\"type\": [\"string\", \"null\"]}, {\"type\": [\"integer\", \"null\"]}]}", N},
    {"{\"enum\": [1, 42]}", I},
    {"{\"enum\": [1, \"a\", null]}", I | S | N},
    {"{\"enum\": [1.5, true, [], {}]}", F | B | A | O},
    {"{\"type\": \"string\", \"enum\": [\"1\"]}", S},
    {"{\"type\": \"number\", \"enum\": [1, 2]}", I},
    {"{\"const\": 3}", I},
    {"{\"const\": null}", N},
    {"{\"$ref\": \"#/$defs/number\"}", F},
    {"{\"$ref\": \"#/$defs/chain\"}", F},
    {"{\"$ref\": \"#/$defs/a~1b%20c\"}", B},
    {"{\"$ref\": \"#/$defs/list/anyOf/1\"}", A},
    {"{\"$ref\": \"#\"}", O},
    {"{\"$ref\": \"#/properties/b\"}", A},
    {"{\"$ref\": \"#/$defs/loop\"}", 0},
    {"{\"$ref\": \"#/$defs/nobody\"}", 0},
    {"{\"$ref\": \"https://example.org/x\"}", 0},
    {"{\"$ref\": \"#/$defs/~2\"}", 0},
    {"{\"anyOf\": [{\"$ref\": \"#/$defs/number\"}, {\"type\": \"null\"}]}", F | N},
};

#define DEFS                                                                                       \
    "\"$defs\": {\"number\": {\"type\": \"number\"}, \"chain\": {\"$ref\": \"#/$defs/number\"}, "  \
    "\"a/b c\": {\"type\": \"boolean\"}, \"list\": {\"anyOf\": [{}, {\"type\": \"array\"}]}, "     \
    "\"loop\": {\"$ref\": \"#/$defs/loop\"}}"

static uint32_t types_in(const char *parameters, const char *key)
{
    json_t *v = json_loads(parameters, 0, NULL);
    assert_non_null(v);
    const uint32_t types = tool_types_of(v, str_from(key));
    json_decref(v);
    return types;
}

static void test_types(void **state)
{
    for (size_t i = 0; i < sizeof type_cases / sizeof *type_cases; i++) {
        char whole[1024];
        snprintf(
            whole, sizeof whole,
            "{\"type\": \"object\", \"properties\": {\"a\": %s, \"b\": {\"type\": \"array\"}}, "
            "%s}",
            type_cases[i].schema, DEFS);
        const uint32_t types = types_in(whole, "a");
        if (types != type_cases[i].types)
            fail_msg("%s: %x, not %x", type_cases[i].schema, types, type_cases[i].types);
    }
}

static void test_places_of_properties(void **state)
{
    assert_int_equal(tool_types_of(NULL, STR("a")), 0);
    assert_int_equal(types_in("{}", "a"), 0);
    assert_int_equal(types_in("[]", "a"), 0);
    assert_int_equal(types_in("{\"additionalProperties\": {\"type\": \"integer\"}}", "a"), I);
    assert_int_equal(types_in("{\"properties\": {\"b\": {\"type\": \"integer\"}}}", "a"), 0);
    assert_int_equal(types_in("{\"allOf\": [{\"properties\": {\"a\": {\"const\": true}}}]}", "a"),
                     B);
    assert_int_equal(types_in("{\"$ref\": \"#/$defs/d\", \"$defs\": {\"d\": {\"properties\": "
                              "{\"a\": {\"type\": \"null\"}}}}}",
                              "a"),
                     N);
    assert_int_equal(types_in("{\"$ref\": \"#\"}", "a"), 0);
    assert_int_equal(types_in("{\"oneOf\": [{\"properties\": {\"a\": {\"type\": \"string\"}}}, "
                              "{\"properties\": {\"a\": {\"type\": \"integer\"}}}, {}]}",
                              "a"),
                     I | S);
    assert_int_equal(types_in("{\"properties\": {\"a\": {}}, \"anyOf\": [{\"$ref\": \"#X\"}], "
                              "\"$defs\": {\"x\": {\"$anchor\": \"X\", \"properties\": {\"a\": "
                              "{\"type\": \"array\"}}}}}",
                              "a"),
                     A);
    assert_int_equal(types_in("{\"$ref\": \"#/$defs/d\", \"$defs\": {\"d\": "
                              "{\"additionalProperties\": {\"type\": \"object\"}}}}",
                              "a"),
                     O);
    assert_int_equal(types_in("{\"$id\": \"urn:t\", \"properties\": {\"a\": {\"$ref\": "
                              "\"urn:t#/$defs/d\"}}, \"$defs\": {\"d\": {\"type\": \"null\"}}}",
                              "a"),
                     N);
    assert_int_equal(types_in("{\"properties\": {\"a\": {\"$ref\": \"urn:d\"}}, \"$defs\": {\"d\": "
                              "{\"$id\": \"urn:d\", \"type\": \"boolean\"}}}",
                              "a"),
                     B);
}

static void test_patterns(void **state)
{
    static const char whole[] =
        "{\"patternProperties\": {\"^n_\": {\"type\": \"integer\"}, \"_b$\": {\"type\": "
        "\"boolean\"}, \"^[0-9]+$\": {\"type\": \"array\"}}, \"additionalProperties\": {\"type\": "
        "\"null\"}}";
    assert_int_equal(types_in(whole, "n_x"), I);
    assert_int_equal(types_in(whole, "x_b"), B);
    assert_int_equal(types_in(whole, "12"), A | N);
    assert_int_equal(types_in("{\"patternProperties\": {\"\": {\"type\": \"integer\"}}}", "q"), I);
    assert_int_equal(types_in("{\"patternProperties\": {\"^a$\": {\"type\": \"integer\"}}}", "ab"),
                     0);
    assert_int_equal(types_in("{\"patternProperties\": {\"^.*$\": {\"type\": \"integer\"}}}", "ab"),
                     I);
}

/* The parser reads a schema in bounded time even when its references double at every step. */
static void test_bound(void **state)
{
    char whole[8192];
    size_t n = (size_t)snprintf(whole, sizeof whole,
                                "{\"properties\": {\"a\": {\"$ref\": "
                                "\"#/$defs/d0\"}}, \"$defs\": {");
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(whole + n, sizeof whole - n,
                              "\"d%d\": {\"anyOf\": [{\"$ref\": \"#/$defs/d%d\"}, {\"$ref\": "
                              "\"#/$defs/d%d\"}]},",
                              i, i + 1, i + 1);
    snprintf(whole + n, sizeof whole - n, "\"d60\": {\"type\": \"integer\"}}}");
    assert_true(types_in(whole, "a") != 0);
}

static const struct {
    uint32_t types;
    const char *text, *want;
} value_cases[] = {
    {0, "a b", "\"a b\""},
    {0, "42", "42"},
    {0, "{\"a\": 1}", "{\"a\": 1}"},
    {0, "True", "true"},
    {S, "42", "\"42\""},
    {S, " a\n", "\" a\\n\""},
    {S, "null", "\"null\""},
    {S | N, "null", "null"},
    {S | N, " Null ", "null"},
    {S | N, "nullable", "\"nullable\""},
    {I, "42", "42"},
    {I, "+042", "42"},
    {I, "-7", "-7"},
    {I, "-0", "0"},
    {I, "1_000", "1000"},
    {I, "1__0", "\"1__0\""},
    {I, "123456789012345678901234567890", "123456789012345678901234567890"},
    {I, "four", "\"four\""},
    {I | S, "42", "42"},
    {I | S, "42b", "\"42b\""},
    {F, "5.0", "5"},
    {F, "0.1", "0.1"},
    {F, "1e3", "1000"},
    {F, "-0.0", "0"},
    {F, "1e400", "1e400"},
    {F, "nan", "\"nan\""},
    {I | F, "5.5", "5.5"},
    {F, "9007199254740993", "9007199254740993"},
    {F, "12345678901234567890123", "12345678901234567890123"},
    {F | S, "-12345678901234567890123", "-12345678901234567890123"},
    {A, "[1,2", "\"[1,2\""},
    {A, "[1]{", "\"[1]{\""},
    {A, "(1, 0x10, 1_000, .5, 5.)", "[1, 16, 1000, 0.5, 5.0]"},
    {O, "{'a': {1, 2}, 3: 'x' \"y\"}", "{\"a\": [1, 2], \"3\": \"xy\"}"},
    {O, "{'a': r'C:\\t', 'b': \'\'\'it's\'\'\'}", "{\"a\": \"C:\\\\t\", \"b\": \"it's\"}"},
    {O, "{\"u\": \"http:\\/\\/x\"}", "{\"u\": \"http:\\/\\/x\"}"},
    {O, "{'u': 'http:\\/\\/x'}", "{\"u\": \"http:\\\\/\\\\/x\"}"},
    {O, "{\"a\": 1,}", "{\"a\": 1}"},
    {A, "[1 2]", "\"[1 2]\""},
    {O, "{{{{1}}}}", "\"{{{{1}}}}\""},
    {B, "TRUE", "true"},
    {B, "0", "false"},
    {B, "1", "true"},
    {B | S, "yes", "\"yes\""},
    {B | I, "1", "1"},
    {O, "{\"a\": [1, 12345678901234567890]}", "{\"a\": [1, 12345678901234567890]}"},
    {A, " [1, 2] ", "[1, 2]"},
    {A | S, "[1, 2", "\"[1, 2\""},
    {O | S, "{\"a\": \"\\u0000\"}", "{\"a\": \"\\u0000\"}"},
};

static void give(uint32_t types, const char *text, char *out, size_t cap)
{
    const struct answer_rules rules = {.call_prefix = "c-", .tools = tool_parser_find("hermes")};
    const struct prompt prompt = {.text = STR("")};
    struct answer a;
    answer_init(&a, &rules, 0, &prompt);
    const uint32_t i_call = answer_call(&a, STR("f"));
    const size_t before = a.bytes.len; /* bytes of the call's id and name */
    tool_value_give(&a, i_call, types, str_from(text));
    snprintf(out, cap, "%.*s", (int)(a.bytes.len - before), a.bytes.ptr + before);
    answer_fini(&a);
}

static void test_values(void **state)
{
    for (size_t i = 0; i < sizeof value_cases / sizeof *value_cases; i++) {
        char got[256] = "";
        give(value_cases[i].types, value_cases[i].text, got, sizeof got);
        if (strcmp(got, value_cases[i].want) != 0)
            fail_msg("%x, %s: %s, not %s", value_cases[i].types, value_cases[i].text, got,
                     value_cases[i].want);
    }
}

/* When a text becomes a type other than a string, no prefix of it is taken for a string. */
static void test_beginnings(void **state)
{
    for (size_t i = 0; i < sizeof value_cases / sizeof *value_cases; i++) {
        const uint32_t types = value_cases[i].types;
        const char *text = value_cases[i].text;
        for (size_t n = 0; (types & S) && value_cases[i].want[0] != '"' && n <= strlen(text); n++)
            assert_true(tool_value_may_be_other(types, (struct str){text, n}));
    }
    assert_false(tool_value_may_be_other(S, STR("42")));
    assert_false(tool_value_may_be_other(S | N, STR("nullable")));
    assert_false(tool_value_may_be_other(S | I, STR("4 apples")));
    assert_false(tool_value_may_be_other(S | O, STR("a")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),      cmocka_unit_test(test_places_of_properties),
        cmocka_unit_test(test_bound),      cmocka_unit_test(test_values),
        cmocka_unit_test(test_beginnings), cmocka_unit_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
