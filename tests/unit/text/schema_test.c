/* Tests JSON schemas as common generators write them, over builtin:bytes. A row has a schema, a
 * text that it accepts and a text that it does not accept. Other rows are refused with an error
 * text that names the reason. tests/golden/schema_suite.py tests each keyword by itself. The
 * tests here have keywords without effect, values beyond bounds, and recursion. Invariant: a
 * schema is either enforced exactly or refused. */
#include "text_fixture.h"

enum { WORDS = 9, EOS = 257 };

static struct text_vocabulary *vocabulary;

static int open_vocabulary(void **state)
{
    struct text_tokenizer *t = NULL;
    char err[TEXT_ERR_MAX];
    int rc = text_tokenizer_open("builtin:bytes", NULL, &t, err);
    if (rc == TEXT_OK)
        rc = text_vocabulary_new(t, &vocabulary, err);
    text_tokenizer_free(t);
    return rc;
}

static int close_vocabulary(void **state)
{
    text_vocabulary_free(vocabulary);
    return 0;
}

/* Returns whether the schema allows the text from its first byte to its end. */
static bool takes(const struct text_grammar *g, const char *text)
{
    struct text_matcher *m;
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX] = "";
    bool ok = true;
    assert_int_equal(text_matcher_new(g, NULL, 0, &m, err), TEXT_OK);
    for (; ok && *text; text++)
        ok = text_matcher_accept(m, (unsigned char)*text, err) == TEXT_OK;
    if (ok && text_matcher_mask(m, words, WORDS, err) != TEXT_OK)
        fail_msg("mask: %s", err);
    ok = ok && (words[EOS / 32] >> (EOS % 32) & 1);
    text_matcher_free(m);
    return ok;
}

struct taken {
    /* bad: a text that the schema refuses; NULL = all texts of the type are allowed */
    const char *schema, *good, *bad;
};

#define IN(s) "{\"type\":\"object\",\"properties\":{\"a\":" s "},\"required\":[\"a\"]}"

static const struct taken taken[] = {
    /* Keywords without effect are accepted. */
    {"{\"type\":\"object\",\"minProperties\":0}", "{}", "[]"},
    {"{\"type\":\"array\",\"uniqueItems\":false,\"minItems\":0}", "[1,1]", "{}"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", "[1]", "[1,1]"},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":0}", "[2]", "{}"},
    {"{\"type\":\"array\",\"minContains\":2,\"maxContains\":3}", "[]", "{}"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"additionalItems\":false}", "[null,null]",
     "[1]"},
    {"{\"type\":\"string\",\"contentMediaType\":\"application/json\",\"contentEncoding\":"
     "\"base64\",\"contentSchema\":{\"not\":{}}}",
     "\"x\"", "1"},
    {"{\"type\":\"string\",\"readOnly\":true,\"writeOnly\":false,\"deprecated\":true,\"$comment\":"
     "\"c\",\"nullable\":true,\"example\":1}",
     "\"x\"", "null"},
    {"{\"dependentRequired\":{},\"dependentSchemas\":{},\"dependencies\":{}}", "{\"a\":1}", NULL},
    {"{\"dependentRequired\":{\"a\":[]},\"dependentSchemas\":{\"a\":true}}", "{\"a\":1}", NULL},
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"unevaluatedProperties\":{}}",
     "{\"a\":1}", "1"},
    {"{\"not\":false,\"if\":{\"type\":\"null\"},\"$vocabulary\":{\"x\":true}}", "1", NULL},
    {"{\"then\":false,\"else\":false}", "1", NULL},
    {"{\"$id\":\"https://example.com/a\",\"$anchor\":\"top\",\"type\":\"null\"}", "null", "1"},
    {"{\"$dynamicAnchor\":\"node\",\"$recursiveAnchor\":true,\"type\":\"null\"}", "null", "1"},
    {"{\"x-order\":{\"minItems\":1000000000,\"pattern\":\"(\"},\"type\":\"null\"}", "null", "1"},
    {"{\"examples\":[{\"pattern\":\"(\"}],\"default\":{\"multipleOf\":999983},\"type\":\"null\"}",
     "null", "1"},
    {"{\"type\":\"object\",\"properties\":{\"const\":{\"type\":\"null\"},\"enum\":{\"type\":"
     "\"null\"}},\"additionalProperties\":false}",
     "{\"const\":null,\"enum\":null}", "{\"enum\":1}"},
    /* A format is an annotation when it is unknown or belongs to another type. */
    {"{\"type\":\"string\",\"format\":\"uri\"}", "\"no uri\"", "1"},
    {"{\"type\":\"string\",\"format\":\"regex\"}", "\"(\"", "1"},
    {"{\"type\":\"string\",\"format\":\"idn-hostname\"}", "\"-\"", "1"},
    {"{\"type\":\"integer\",\"format\":\"int32\"}", "4294967296", "1.5"},
    {"{\"type\":\"number\",\"format\":\"double\"}", "1.5", "\"1\""},
    {"{\"type\":\"number\",\"format\":\"date\"}", "1.5", "\"2024-01-01\""},
    {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":10}", "\"2024-02-29\"",
     "\"2023-02-29\""},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2\"}", "\"2000-02-29\"",
     "\"1999-01-01\""},
    {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2016-12-31T23:59:60Z\"",
     "\"2016-12-31T22:59:60Z\""},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::ffff:192.168.0.1\"", "\"1::2::3\""},
    /* Bounds that never apply, and bounds that are far away, are accepted. */
    {"{\"type\":\"string\",\"maxLength\":2147483647,\"minLength\":0}", "\"ab\"", "1"},
    {"{\"type\":\"string\",\"maxLength\":1e400}", "\"ab\"", "1"},
    {"{\"type\":\"array\",\"maxItems\":9223372036854775807}", "[1]", "1"},
    {"{\"type\":\"array\",\"minItems\":2.0}", "[1,2]", "[1]"},
    {"{\"type\":\"object\",\"maxProperties\":4294967295}", "{\"a\":1}", "1"},
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
     "18446744073709551615", "-1"},
    {"{\"type\":\"integer\",\"minimum\":-9223372036854775808}", "-9223372036854775808", "1.5"},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-9223372036854775808,\"maximum\":0}", "-5", "1"},
    {"{\"type\":\"integer\",\"maximum\":9007199254740993}", "9007199254740992", "9007199254740994"},
    {"{\"type\":\"integer\",\"exclusiveMaximum\":9007199254740994}", "9007199254740992",
     "9007199254740994"},
    {"{\"type\":\"number\",\"maximum\":1e400,\"minimum\":-1e400}", "5.5", "\"\""},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1e308}", "5.5", "-1"},
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":"
     "99999999999999999999999999999999999999999999999999}",
     "7", "-7"},
    {"{\"default\":1e400,\"examples\":[-1e400],\"type\":\"integer\"}", "7", "1.5"},
    {"{\"type\":\"integer\",\"multipleOf\":1}", "7", "1.5"},
    {"{\"const\":9007199254740992}", "9007199254740992", "9007199254740993"},
    {"{\"enum\":[-9223372036854774784,0.1]}", "-9223372036854774784", "-9223372036854774785"},
    /* Other names of dialects are accepted. */
    {"{\"$schema\":\"https://json-schema.org/draft-07/schema\",\"items\":[{\"type\":\"null\"}],"
     "\"additionalItems\":false}",
     "[null]", "[null,1]"},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema\",\"$ref\":\"#/definitions/a\","
     "\"maximum\":1,\"definitions\":{\"a\":{\"type\":\"integer\"}}}",
     "7", "1.5"},
    {"{\"$schema\":\"https://spec.openapis.org/oas/3.1/dialect/base\",\"type\":\"null\"}", "null",
     "1"},
    {"{\"$schema\":\"urn:ours\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}", "[null]",
     "[1]"},
    /* Patterns have the meaning of ECMA-262. */
    {"{\"type\":\"string\",\"pattern\":\"^\\\\s\\\\S$\"}", "\"\uFEFFa\"",
     "\"\xc2\x85"
     "a\""},
    {"{\"type\":\"string\",\"pattern\":\"^a.b$\"}", "\"a b\"", "\"a\u2028b\""},
    {"{\"type\":\"string\",\"pattern\":\"^[a&&b]$\"}", "\"&\"", "\"c\""},
    {"{\"type\":\"string\",\"pattern\":\"^[[a]]$\"}", "\"[]\"", "\"a\""},
    {"{\"type\":\"string\",\"pattern\":\"^[^]$\"}", "\"x\"", "\"\""},
    {"{\"type\":\"string\",\"pattern\":\"^[+--]$\"}", "\",\"", "\".\""},
    {"{\"type\":\"string\",\"pattern\":\"^{x}$\"}", "\"{x}\"", "\"x\""},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\ud83d\\\\udc32$\"}", "\"\U0001f432\"", "\"a\""},
    /* Keywords that the llguidance crate lacks are expressed with keywords that it has. */
    {"{\"dependentRequired\":{\"a\":[\"b\"]},\"type\":\"object\"}", "{\"a\":1,\"b\":2}",
     "{\"a\":1}"},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\"]},\"additionalProperties\":{"
     "\"type\":\"null\"}}",
     "{\"y\":null}", "{\"z\":null}"},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^x_\"}}", "{\"x_1\":1}", "{\"y\":1}"},
    {IN("{\"not\":{}}") /* {"not":{}} is TypeScript's `never` */, NULL, NULL},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}", "{\"b\":1}", "{\"a\":1}"},
    {"{\"type\":\"array\",\"contains\":true}", "[1]", "[]"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":false}", "{\"a\":1}",
     "{\"b\":1}"},
    {"{\"properties\":{\"foo\":{\"minimum\":3}},\"patternProperties\":{\"^f\":{\"maximum\":5}},"
     "\"required\":[\"foo\"],\"type\":\"object\"}",
     "{\"foo\":4}", "{\"foo\":6}"},
    {"{\"items\":[{\"type\":\"null\"}],\"anyOf\":[{\"type\":\"array\"}],\"additionalItems\":false}",
     "[null]", "[null,1]"},
    {"{\"$ref\":\"#/components/schemas/"
     "A\",\"components\":{\"schemas\":{\"A\":{\"type\":\"null\"}}}}",
     "null", "1"},
    {"{\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#n\"},\"$defs\":{\"n\":{\"$dynamicAnchor\":"
     "\"n\",\"type\":\"null\"}}}",
     "[null]", "[1]"},
    /* Bounds may exclude a whole number. */
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.1}", "0.1", "0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.1}", "0.05", "0.2"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.1}", "0.05", "0.0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":0.5}", "0.4", "0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":0.5}", "0.4", "0.5"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":0.5}", "0.4", "0.50"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.4", "0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "5", "-1"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "100", "-1"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.001", "-1"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":1,\"maximum\":1.5}", "1.5", "1"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":1,\"maximum\":1.5}", "1.1", "1.0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":1,\"maximum\":1.5}", "1.1", "1.6"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":2,\"maximum\":2.5}", "2.1", "2"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":10,\"exclusiveMaximum\":10.5}", "10.1", "10"},
    {"{\"type\":\"number\",\"minimum\":-0.1,\"exclusiveMaximum\":0}", "-0.1", "-0"},
    {"{\"type\":\"number\",\"minimum\":-0.1,\"exclusiveMaximum\":0}", "-0.1", "0"},
    {"{\"type\":\"number\",\"minimum\":-0.1,\"exclusiveMaximum\":0}", "-0.1", "-0.2"},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"exclusiveMaximum\":-2}", "-2.1", "-2"},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"exclusiveMaximum\":-2}", "-2.1", "-2.0"},
    {"{\"allOf\":[{\"type\":\"number\",\"exclusiveMinimum\":3},{\"type\":\"number\",\"maximum\":3."
     "5}]}",
     "3.2", "3"},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":3}", "4", "3"},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":3}", "10", "3"},
    {"{\"type\":\"integer\",\"exclusiveMaximum\":-3,\"exclusiveMinimum\":-7}", "-4", "-3"},
    {"{\"type\":\"integer\",\"exclusiveMaximum\":-3,\"exclusiveMinimum\":-7}", "-6", "-7"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":5,\"multipleOf\":0.5}",
     "0.5", "0"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":5,\"multipleOf\":0.5}",
     "4.5", "5"},
    /* Numbers that are the first digits of a bound are exact, and zeros may follow their digits. */
    {"{\"type\":\"number\",\"maximum\":0.999}", "0.9", "0.9991"},
    {"{\"type\":\"number\",\"maximum\":0.999}", "0.9990", "1"},
    {"{\"type\":\"number\",\"maximum\":5.25}", "5.2", "5.26"},
    {"{\"type\":\"number\",\"maximum\":5.05}", "5.0", "5.1"},
    {"{\"type\":\"number\",\"maximum\":5}", "-0.50", "5.01"},
    {"{\"type\":\"number\",\"minimum\":-5.25}", "-5.2", "-5.26"},
    {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":0.15}", "0.1", "0.151"},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.999}", "0.99", "0.999"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-0.999}", "-0.99", "-0.9990"},
    {"{\"type\":\"number\",\"minimum\":-99.99,\"maximum\":-1.25}", "-99.9", "-1.2"},
    {"{\"type\":\"number\",\"minimum\":-99.99,\"maximum\":-1.25}", "-1.250", "1.5"},
    {"{\"type\":\"number\",\"minimum\":1e3,\"maximum\":1.5E3}", "1000", "999.9"},
    {"{\"type\":\"number\",\"maximum\":25e-3}", "0.02", "0.026"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.0000000000000000001", "0.000"},
    {"{\"type\":\"integer\",\"minimum\":0.5}", "1", "0"},
    {"{\"type\":\"integer\",\"maximum\":-0.5}", "-1", "0"},
    {"{\"minimum\":0.5}", "\"x\"", "0.4"},
    {"{\"type\":[\"number\",\"string\"],\"maximum\":0.5,\"minLength\":2}", "\"ab\"", "\"a\""},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"type\":\"number\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":0.25}",
     "0.2", "0.0"},
    /* multipleOf also applies to numbers below 0, and it may be a fraction. */
    {"{\"type\":\"integer\",\"multipleOf\":5}", "-10", "-7"},
    {"{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":-12,\"maximum\":7}", "-10", "-15"},
    {"{\"type\":\"integer\",\"multipleOf\":5,\"exclusiveMinimum\":-10}", "-5", "-10"},
    {"{\"type\":\"integer\",\"multipleOf\":5,\"exclusiveMaximum\":0}", "-5", "0"},
    {"{\"type\":\"integer\",\"multipleOf\":100}", "-200", "150"},
    {"{\"type\":\"integer\",\"multipleOf\":0.5}", "-3", "0.5"},
    {"{\"type\":\"number\",\"multipleOf\":0.25}", "0.5", "0.3"},
    {"{\"type\":\"number\",\"multipleOf\":0.25}", "-12.750", "-12.7"},
    {"{\"type\":\"number\",\"multipleOf\":0.01}", "-0.5", "0.001"},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"minimum\":-3}", "-2.5", "-5"},
    {"{\"type\":\"integer\",\"multipleOf\":2000000}", "-4000000", "1000000"},
    {"{\"type\":[\"integer\",\"null\"],\"multipleOf\":5}", "null", "7"},
    /* Integers may have any size. */
    {"{\"type\":\"integer\",\"maximum\":9223372036854775807}", "9223372036854775807",
     "9223372036854775808"},
    {"{\"type\":\"integer\",\"minimum\":-9223372036854775809}", "-9223372036854775809",
     "-9223372036854775810"},
    {"{\"type\":\"integer\",\"exclusiveMaximum\":18446744073709551616}", "18446744073709551615",
     "18446744073709551616"},
    {"{\"type\":\"integer\",\"minimum\":100000000000000000001}", "100000000000000000001",
     "100000000000000000000"},
    {"{\"type\":\"integer\",\"minimum\":1e30}", "1000000000000000000000000000000",
     "999999999999999999999999999999"},
    {"{\"type\":\"integer\",\"maximum\":9007199254740993}", "9007199254740993", "9007199254740994"},
    /* Numbers with bounds may be inside other schemas. */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":"
     "0.999},\"b\":{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.999}}}",
     "{\"a\":0.9,\"b\":-0.50}", "{\"a\":1}"},
    {"{\"anyOf\":[{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.999},{\"type\":\"null\"}],"
     "\"default\":null}",
     "0.9", "1"},
    {"{\"allOf\":[{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.999}]}", "0.9", "1"},
    {"{\"$defs\":{\"n\":{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.999}},\"type\":"
     "\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}",
     "[0.9,-0.1]", "[1]"},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\",\"minimum\":-0.5,"
     "\"maximum\":0.999}}",
     "{\"x\":0.9}", "{\"x\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":"
     "0.999},\"c\":{\"$ref\":\"#\"}},\"additionalProperties\":false}",
     "{\"v\":0.9,\"c\":{\"v\":0.1}}", "{\"c\":{\"v\":1}}"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/"
     "n\"},{\"maximum\":0.3}]}},\"$defs\":{\"n\":{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":"
     "0.999}}}",
     "{\"a\":0.5,\"b\":0.1}", "{\"b\":0.5}"},
    {"{\"allOf\":[{\"type\":\"integer\"},{\"maximum\":5.25}]}", "5", "5.2"},
    {"{\"oneOf\":[{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.999},{\"type\":\"string\"}]}",
     "0.5", "1"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":5,"
     "\"minimum\":1,\"maximum\":4}}}",
     "{\"b\":1}", "{\"a\":5}"},
    {"{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":1,\"maximum\":4}", NULL, NULL},
    {"{\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0.5},{\"type\":\"integer\",\"minimum\":1}"
     "],\"items\":false}",
     "[1,1]", "[0,1]"},
    /* Names of members have only one spelling. */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
     "{\"a\":1}", "{\"a\":1,\"\\u0061\":\"x\"}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
     "{\"a\":1,\"b\":\"x\"}", "{\"a\":1,\"a\":\"x\"}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
     "{\"a\":1,\"x\\\"\\\\\\n\\u000b\":\"x\"}", "{\"a\":1,\"b\\/\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
     "{\"a\":1,\"aa\":2}", "{\"a\":1,\"\\u000a\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
     "{\"a\":1,\"é😀\":2}", "{\"a\":1,\"\\u000B\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"a/"
     "b\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"string\"}}",
     "{\"a/b\":1,\"c\":\"x\"}", "{\"a\\/b\":\"x\"}"},
    {"{\"type\":\"object\",\"patternProperties\":{\"[0-9]\":{\"type\":\"string\"}}}",
     "{\"1/\":\"6\"}", "{\"1\\/\":6}"},
    {"{\"type\":\"object\",\"patternProperties\":{\"[0-9]\":{\"type\":\"string\"}}}", "{\"a\":6}",
     "{\"\\u0031\":6}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":false}}", "{\"b\":1}", "{\"a\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":false}}", "{\"b\":1}", "{\"\\u0061\":1}"},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1,\"b\":2}",
     "{\"a\":1}"},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"c\":1}", "{\"\\u0061\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"a\\nb\":{\"type\":\"integer\"}}}", "{\"a\\nb\":1}",
     "{\"a\\nb\":\"x\"}"},
    {"{\"type\":\"object\",\"properties\":{\"a\\nb\":{\"type\":\"integer\"}}}", "{\"a\\nb\":1}",
     "{\"a\\u000ab\":\"x\"}"},
    {"{\"type\":\"object\"}", "{\"b\":1}", NULL},
    /* propertyNames may refer to a list of names, and oneOf may list constants. */
    {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/"
     "E\"},\"additionalProperties\":{\"type\":\"integer\"},\"$defs\":{\"E\":{\"enum\":[\"x\",\"y\"]"
     ",\"type\":\"string\"}}}",
     "{\"x\":1}", "{\"z\":1}"},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", "1", "3"},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", "2", "3"},
    {"{\"oneOf\":[{\"const\":1,\"title\":\"a\"},{\"enum\":[2,\"1\",null]}]}", "1", "3"},
    {"{\"oneOf\":[{\"const\":1,\"title\":\"a\"},{\"enum\":[2,\"1\",null]}]}", "2", "3"},
    {"{\"oneOf\":[{\"const\":1,\"title\":\"a\"},{\"enum\":[2,\"1\",null]}]}", "null", "3"},
    {"{\"oneOf\":[{\"const\":1,\"title\":\"a\"},{\"enum\":[2,\"1\",null]}]}", "\"1\"", "3"},
    /* A text that only looks like an internal marker is a normal text. */
    {"{\"const\":\"﷐number:5\"}", "\"﷐number:5\"", "5"},
};

static void each_is_taken(const struct taken *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct taken *c = &rows[i];
        struct text_grammar *g = NULL;
        char err[TEXT_ERR_MAX] = "";
        int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, c->schema,
                                      strlen(c->schema), &g, err);
        if ((rc == TEXT_OK) != (c->good != NULL))
            fail_msg("%s: %d %s", c->schema, rc, err);
        if (rc != TEXT_OK)
            continue;
        if (!takes(g, c->good))
            fail_msg("%s does not take %s", c->schema, c->good);
        if (c->bad && takes(g, c->bad))
            fail_msg("%s takes %s", c->schema, c->bad);
        text_grammar_free(g);
    }
}

static void what_asks_for_little_is_taken(void **state)
{
    each_is_taken(taken, sizeof taken / sizeof *taken);
}

#define NODE "\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"c\":{\"$ref\":\"#/$defs/n\"}}"

/* A recursive schema without a finite text is refused, whatever path its references take. A
 * recursive schema with a finite text is accepted. */
static const struct taken recursive[] = {
    {"{\"$ref\":\"#/$defs/n\"," NODE ",\"required\":[\"c\"]}}}", NULL, NULL},
    {"{\"$ref\":\"#/$defs/n\"," NODE "}}}", "{\"c\":{}}", "{\"c\":1}"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/n\"}]," NODE ",\"required\":[\"c\"]}}}",
     "null", "{\"c\":null}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}}," NODE
     ",\"required\":[\"c\"]}}}",
     "{\"b\":1}", "{\"a\":{}}"},
    {"{\"$ref\":\"#\"}", NULL, NULL},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "null", "1"},
    {"{\"oneOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", NULL, NULL},
    {"{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", NULL, NULL},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[[],[[]]]", "[1]"},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}", NULL, NULL},
    {"{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#\"}]}", "[[]]", "[1]"},
    {"{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#\"}],\"minItems\":1}", NULL, NULL},
    {"{\"type\":[\"array\",\"null\"],\"prefixItems\":[{\"$ref\":\"#\"}],\"minItems\":1}",
     "[[null]]", "[]"},
    {"{\"type\":\"object\",\"additionalProperties\":{\"$ref\":\"#\"}}", "{\"a\":{}}", "{\"a\":1}"},
    {"{\"type\":\"object\",\"additionalProperties\":{\"$ref\":\"#\"},\"required\":[\"a\"]}", NULL,
     NULL},
    {"{\"type\":\"object\",\"additionalProperties\":{\"$ref\":\"#\"},\"minProperties\":1}", NULL,
     NULL},
    {"{\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}", "{\"a\":1}", "{}"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/"
     "a\"}}}",
     NULL, NULL},
    {"{\"$ref\":\"#/%24defs/a\",\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}}}", NULL,
     NULL},
    {"{\"$ref\":\"#a\",\"$defs\":{\"x\":{\"$anchor\":\"a\",\"type\":\"object\",\"required\":[\"k\"]"
     ","
     "\"properties\":{\"k\":{\"$ref\":\"#a\"}}}}}",
     NULL, NULL},
    {"{\"const\":{\"$ref\":\"#\"}}", "{\"$ref\":\"#\"}", "{}"},
    {"false", NULL, NULL},
    {"{\"enum\":[]}", NULL, NULL},
};

static void what_has_no_end_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof recursive / sizeof *recursive; i++) {
        const struct taken *c = &recursive[i];
        struct text_grammar *g = NULL;
        char err[TEXT_ERR_MAX] = "";
        int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, c->schema,
                                      strlen(c->schema), &g, err);
        if ((rc == TEXT_OK) != (c->good != NULL) ||
            (rc != TEXT_OK && !strstr(err, "the schema allows no text")))
            fail_msg("%s: %d %s", c->schema, rc, err);
        if (rc == TEXT_OK && (!takes(g, c->good) || takes(g, c->bad)))
            fail_msg("%s: not %s, or %s", c->schema, c->good, c->bad);
        text_grammar_free(g);
    }
}

/* A schema that a mask could not enforce is refused, and the error names the keyword. */
static void what_is_not_kept_to_is_refused_by_name(void **state)
{
    static const struct {
        const char *schema, *words;
    } refused[] = {
        {"{\"not\":{\"type\":\"string\"}}", "not"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
        {"{\"type\":\"array\",\"contains\":{\"const\":1}}", "contains"},
        {"{\"if\":{\"type\":\"null\"},\"then\":false}", "if"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", "oneOf"},
        {"{\"oneOf\":[{\"$ref\":\"#/$defs/"
         "a\"},{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[1]}},"
         "\"required\":[\"k\"]}],\"$defs\":{\"a\":{\"required\":[\"k\"],\"properties\":{\"k\":{"
         "\"const\":"
         "1.0}}}}}",
         "oneOf"},
        {IN("{\"type\":\"string\",\"pattern\":\"^((a{2,90}){2,90}){2,90}$\",\"minLength\":7000}"),
         "property a: it costs too much to check whether any string matches the pattern "
         "^((a{2,90}){2,90}){2,90}$ and minLength"},
        {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^[a-z]{300}$\",\"maxLength\":299},{"
         "\"minLength\":"
         "2}]}",
         "pattern ^[a-z]{300}$ and the other patterns"},
        {"{\"allOf\":[{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}},"
         "{\"additionalProperties\":{\"type\":\"string\"}}]}",
         "patternProperties"},
        {"{\"const\":18446744073709551615}", "too many digits"},
        {"{\"enum\":[1e400]}", "too large for a double"},
        {"{\"const\":9007199254740993}", "too many digits"},
        {"{\"type\":\"integer\",\"minimum\":1e400}", "340 digits"},
        {"{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":1e40}]}", "64 bits"},
        {"{\"multipleOf\":1e-9}", "8 digits after the decimal point"},
        {"{\"multipleOf\":0}", "greater than 0"},
        {"{\"type\":\"string\",\"pattern\":\"[]\"}", "character class that is empty"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "look-around"},
        {"{\"patternProperties\":{\"\\\\s\":{},\"[\\\\s]\":{}}}", "patternPropert"},
        {"{\"properties\":{\"a\\nb\":{}},\"patternProperties\":{\"a\":{}}}", "control character"},
        {"{\"type\":\"string\",\"minLength\":2000000}", "minLength"},
        {"{\"type\":\"array\",\"minItems\":30000}", "minItems"},
        {"{\"type\":\"wrong\"}", "wrong"},
        {"{\"$ref\":\"https://example.com/other\"}", "example.com/other"},
        {"{\"$ref\":\"#/nowhere\"}", "nowhere"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct text_grammar *g = NULL;
        char err[TEXT_ERR_MAX] = "";
        int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, refused[i].schema,
                                      strlen(refused[i].schema), &g, err);
        if (rc == TEXT_OK || rc == TEXT_INTERNAL || !strstr(err, refused[i].words))
            fail_msg("%s: %d %s", refused[i].schema, rc, err);
    }
}

/* Returns a text of `head`, n copies of `part` that each contain their number, and `tail`. */
static char *numbered(const char *head, const char *part, int n, const char *tail)
{
    char *out = malloc(strlen(head) + (size_t)n * (strlen(part) + 12) + strlen(tail) + 1);
    char *at = out + sprintf(out, "%s", head);
    for (int i = 0; i < n; i++)
        at += sprintf(at, part, i);
    strcpy(at, tail);
    return out;
}

/* Schemas that the llguidance crate would compile for minutes are refused at once. Schemas of a
 * usual size are accepted. */
static void what_is_too_much_is_refused(void **state)
{
    static const struct {
        /* words: a part of the error; NULL = the schema is accepted */
        const char *head, *part, *tail, *words;
        int n;
    } cases[] = {
        {"{\"properties\":{", "\"p%d\":{},", "\"z\":{}}}", "2000 properties", 5000},
        {"{\"properties\":{", "\"p%d\":{},", "\"z\":{}}}", "1000 optional properties", 1500},
        {"{\"properties\":{", "\"p%d\":{},", "\"z\":{}}}", NULL, 450},
        {"{\"required\":[", "\"p%d\",", "\"z\"]}", NULL, 1500},
        {"{\"allOf\":[", "{\"properties\":{\"p%d\":{}}},", "{}]}", "1000 optional properties",
         1100},
        {"{\"const\":{", "\"p%d\":1,", "\"z\":1}}", "2000 properties", 5000},
        {"{\"patternProperties\":{", "\"^p%d_\":{},", "\"^z\":{}}}", "patternProperties", 64},
        {"{\"patternProperties\":{", "\"^p%d_\":{},", "\"^z\":{}}}", NULL, 20},
        {"{\"allOf\":[", "{\"pattern\":\"a.*%d\"},", "{}]}", "patterns for one string", 9},
        {"{\"anyOf\":[", "{\"pattern\":\"^a%d$\"},", "{\"type\":\"null\"}]}", NULL, 100},
        {"{\"$ref\":\"#/$defs/c0\",\"$defs\":{", "\"c%d\":{\"$ref\":\"#/$defs/c\"},",
         "\"c\":{\"type\":\"null\"}}}", NULL, 3000},
        {"{\"enum\":[", "\"v%d\",", "1]}", NULL, 3000},
        {"{\"maximum\":1", "%d", "}", NULL, 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *schema = numbered(cases[i].head, cases[i].part, cases[i].n, cases[i].tail);
        struct text_grammar *g = NULL;
        char err[TEXT_ERR_MAX] = "";
        int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, schema, strlen(schema),
                                      &g, err);
        if (cases[i].words ? rc != TEXT_LIMIT || !strstr(err, cases[i].words) : rc != TEXT_OK)
            fail_msg("%zu: %d %s", i, rc, err);
        text_grammar_free(g);
        free(schema);
    }
}

#define KIND(c, more) "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"" c "\"}}" more "}"
#define BOTH          "{\"oneOf\":[{\"$ref\":\"#/$defs/A\"},{\"$ref\":\"#/$defs/B\"}]"
#define HOST                                                                                       \
    "^(?:[a-z0-9](?:[a-z0-9\\\\-]{0,61}[a-z0-9])?\\\\.)+[a-z0-9][a-z0-9\\\\-]{0,61}[a-z0-9]$"

static const struct taken options[] = {
    /* Options may be behind references, allOf, enum and other options. */
    {BOTH ",\"$defs\":{\"A\":" KIND("a", ",\"required\":[\"k\"]") ",\"B\":" KIND(
         "b", ",\"required\":[\"k\"]") "}}",
     "{\"k\":\"b\"}", "{}"},
    {BOTH ",\"$defs\":{\"A\":{\"$ref\":\"#/$defs/C\"},\"B\":{\"allOf\":[" KIND(
         "b",
         ",\"required\":[\"k\"]") "]},\"C\":{\"allOf\":[{\"required\":[\"k\"]}," KIND("a",
                                                                                      "") "]}}}",
     "{\"k\":\"a\"}", "{\"k\":\"c\"}"},
    {BOTH ",\"$defs\":{\"A\":{\"type\":\"object\",\"properties\":{\"k\":{\"$ref\":\"#/$defs/"
          "K\"}},\"required\":[\"k\"]},\"B\":" KIND("b", "") ",\"K\":{\"enum\":[\"a\",\"c\"]}}}",
     "{\"k\":\"c\"}", "{\"k\":\"d\"}"},
    {"{\"oneOf\":[{\"oneOf\":[" KIND("a", ",\"required\":[\"k\"]") "," KIND(
         "b",
         ",\"required\":[\"k\"]") "]},{\"$ref\":\"#/$defs/C\"}],\"$defs\":{\"C\":" KIND("c",
                                                                                        "") "}}",
     "{\"k\":\"b\"}", "{\"k\":\"d\"}"},
    {BOTH ",\"$defs\":{\"A\":{\"type\":\"string\"},\"B\":{\"type\":\"null\"}}}", "\"x\"", "1"},
    {BOTH ",\"$defs\":{\"A\":{\"type\":\"object\",\"required\":[\"p\"]},\"B\":{\"type\":\"object\","
          "\"properties\":{\"q\":{}},\"additionalProperties\":false}}}",
     "{\"p\":1}", "{\"r\":1}"},
    /* The member that distinguishes the options becomes required. Without that member, both
     * options could match. */
    {BOTH ",\"discriminator\":{\"propertyName\":\"k\",\"mapping\":{\"a\":\"#/$defs/A\"}},"
          "\"$defs\":{\"A\":" KIND("a", "") ",\"B\":" KIND("b", "") "}}",
     "{\"k\":\"a\"}", "{}"},
    {BOTH ",\"anyOf\":[{\"required\":[\"x\"]},{\"required\":[\"k\"]}],\"$defs\":{\"A\":" KIND(
         "a", "") ",\"B\":" KIND("b", "") "}}",
     "{\"k\":\"a\"}", "{\"x\":1}"},
    /* A union may contain itself. */
    {"{\"$ref\":\"#/$defs/N\",\"$defs\":{\"N\":{\"oneOf\":[{\"$ref\":\"#/$defs/L\"},{\"type\":"
     "\"object\",\"properties\":{\"k\":{\"const\":\"n\"},\"c\":{\"$ref\":\"#/$defs/N\"}},"
     "\"required\":[\"k\",\"c\"]}]},\"L\":" KIND("l", ",\"required\":[\"k\"]") "}}",
     "{\"k\":\"n\",\"c\":{\"k\":\"l\"}}", "{\"k\":\"n\",\"c\":{}}"},
    /* These schemas have a pattern and a length. Only a longer search shows whether a text
     * satisfies both. */
    {"{\"type\":\"string\",\"maxLength\":8,\"pattern\":\"" HOST "\"}", "\"ab.cd.ef\"",
     "\"ab.cd.efg\""},
    {IN("{\"type\":[\"string\",\"null\"],\"maxLength\":253,\"pattern\":\"" HOST "\"}"),
     "{\"a\":null}", "{\"a\":\"ab\"}"},
    {"{\"maxLength\":253,\"pattern\":\"" HOST "\",\"minimum\":1.5}", "[\"ab\"]", "\"ab\""},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"pattern\":\"^[a-z]{300}$\","
     "\"maxLength\":"
     "299}]}",
     "null", "\"a"},
};

static void options_and_lengths_are_told_apart(void **state)
{
    each_is_taken(options, sizeof options / sizeof *options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_asks_for_little_is_taken),
        cmocka_unit_test(options_and_lengths_are_told_apart),
        cmocka_unit_test(what_has_no_end_is_refused),
        cmocka_unit_test(what_is_not_kept_to_is_refused_by_name),
        cmocka_unit_test(what_is_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
