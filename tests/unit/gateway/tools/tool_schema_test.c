/* Tests the schema of an answer that has to call tools. The input is the request's list of
 * tools. The output is one JSON schema with each tool's parameters under `$defs`. Invariants: a
 * reference inside a tool's parameters still points to the same place, and the request's own
 * tools are not changed. */
#include "gateway/tools/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *tools_of(const char *const *parameters, size_t n)
{
    json_t *tools = json_array();
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%zu", i);
        json_t *function = json_pack("{s:s}", "name", name);
        if (parameters[i]) {
            json_t *v = json_loads(parameters[i], JSON_DECODE_ANY, NULL);
            assert_non_null(v);
            json_object_set_new(function, "parameters", v);
        }
        json_array_append_new(tools,
                              json_pack("{s:s,s:o}", "type", "function", "function", function));
    }
    return tools;
}

/* Each case has the parameters of one tool, and their schema in the answer's schema. ' stands
 * for ". */
static const struct {
    const char *parameters, *want;
} cases[] = {
    /* Without `additionalProperties` the object is closed, as in strict mode. */
    {NULL, "{'properties':{},'type':'object','additionalProperties':false}"},
    {"{}", "{'properties':{},'type':'object','additionalProperties':false}"},
    {"[]", "{'properties':{},'type':'object','additionalProperties':false}"},
    {"{'type':'object','properties':{'a':{}}}",
     "{'type':'object','properties':{'a':{}},'additionalProperties':false}"},
    {"{'properties':{'a':{'properties':{'b':{}}}}}",
     "{'properties':{'a':{'properties':{'b':{}},'additionalProperties':false}},'type':'object',"
     "'additionalProperties':false}"},
    {"{'properties':{'a':{'type':'array','items':{'properties':{'b':{}}}}}}",
     "{'properties':{'a':{'type':'array','items':{'properties':{'b':{}},"
     "'additionalProperties':false}}},'type':'object','additionalProperties':false}"},
    /* The object stays open where the schema says so. */
    {"{'type':'object','additionalProperties':true}",
     "{'type':'object','additionalProperties':true}"},
    {"{'type':'object','properties':{},'additionalProperties':{'type':'integer'}}",
     "{'type':'object','properties':{},'additionalProperties':{'type':'integer'}}"},
    {"{'properties':{'a':{'type':'object'}}}",
     "{'properties':{'a':{'type':'object'}},'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{}},'patternProperties':{'b':{}}}",
     "{'properties':{'a':{}},'patternProperties':{'b':{}},'type':'object'}"},
    {"{'allOf':[{'properties':{'a':{}}},{'properties':{'b':{}}}]}",
     "{'allOf':[{'properties':{'a':{}}},{'properties':{'b':{}}}],'type':'object',"
     "'properties':{'a':{},'b':{}},'additionalProperties':false}"},
    {"{'anyOf':[{'properties':{'a':{}}},{'properties':{'b':{}}}]}",
     "{'anyOf':[{'properties':{'a':{}},'additionalProperties':false},{'properties':{'b':{}},"
     "'additionalProperties':false}],'type':'object'}"},
    {"{'properties':{'c':{}},'anyOf':[{'properties':{'a':{}}}]}",
     "{'properties':{'c':{},'a':{}},'anyOf':[{'properties':{'a':{}}}],'type':'object',"
     "'additionalProperties':false}"},
    {"{'$ref':'#/$defs/d','$defs':{'d':{'properties':{'a':{}}}}}",
     "{'$ref':'#/$defs/tool0/$defs/d','$defs':{'d':{'properties':{'a':{}},"
     "'additionalProperties':false}},'type':'object'}"},
    {"{'allOf':[{'$ref':'#/$defs/d'}],'properties':{'b':{}},'$defs':{'d':{'properties':{'a':{}}}}}",
     "{'allOf':[{'$ref':'#/$defs/tool0/$defs/d'}],'properties':{'b':{}},'$defs':{'d':{"
     "'properties':{'a':{}}}},'type':'object','properties':{'b':{},'a':{}},"
     "'additionalProperties':false}"},
    {"{'$defs':{'d':{'properties':{'a':{}}}},'properties':{'o':{'allOf':[{'$ref':'#/$defs/d'}],"
     "'description':'x'}}}",
     "{'$defs':{'d':{'properties':{'a':{}}}},'properties':{'o':{'allOf':[{'$ref':"
     "'#/$defs/tool0/$defs/d'}],'description':'x','properties':{'a':{}},"
     "'additionalProperties':false}},'type':'object','additionalProperties':false}"},
    {"{'properties':{'x':{},'y':{}},'anyOf':[{'required':['x']},{'required':['y']}]}",
     "{'properties':{'x':{},'y':{}},'anyOf':[{'required':['x']},{'required':['y']}],"
     "'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{},'b':{}},'dependencies':{'a':['b']},'propertyNames':{'minLength':1}}",
     "{'properties':{'a':{},'b':{}},'dependencies':{'a':['b']},'propertyNames':{'minLength':1},"
     "'type':'object','additionalProperties':false}"},
    {"{'allOf':[{'properties':{'a':{}}},{'additionalProperties':{'type':'integer'}}]}",
     "{'allOf':[{'properties':{'a':{}}},{'additionalProperties':{'type':'integer'}}],"
     "'type':'object'}"},
    {"{'allOf':[{'properties':{'a':{'properties':{'b':{}}}}}]}",
     "{'allOf':[{'properties':{'a':{'properties':{'b':{}},'additionalProperties':false}}}],"
     "'type':'object','properties':{'a':{}},'additionalProperties':false}"},
    {"{'properties':{'a':{'not':{'properties':{'b':{}}}}}}",
     "{'properties':{'a':{'not':{'properties':{'b':{}}}}},'type':'object',"
     "'additionalProperties':false}"},
    /* A required property is allowed, even when `properties` lacks it. */
    {"{'properties':{'a':{}},'required':['a','z']}",
     "{'properties':{'a':{},'z':{}},'required':['a','z'],'type':'object',"
     "'additionalProperties':false}"},
    {"{'required':['a']}", "{'required':['a'],'type':'object','properties':{'a':{}},"
                           "'additionalProperties':false}"},
    {"{'properties':null}", "{'properties':{},'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{}},'required':['z'],'additionalProperties':false}",
     "{'properties':{'a':{}},'required':['z'],'additionalProperties':false,'type':'object'}"},
    /* Arguments are an object, whatever the schema says. */
    {"{'type':'array','items':{}}", "{'type':'object','items':{},'properties':{},"
                                    "'additionalProperties':false}"},
    /* References are moved along with the schema. */
    {"{'properties':{'next':{'$ref':'#'}}}",
     "{'properties':{'next':{'$ref':'#/$defs/tool0'}},'type':'object',"
     "'additionalProperties':false}"},
    {"{'properties':{'a':{},'b':{'$ref':'#/properties/a'}}}",
     "{'properties':{'a':{},'b':{'$ref':'#/$defs/tool0/properties/a'}},'type':'object',"
     "'additionalProperties':false}"},
    {"{'$id':'urn:x','properties':{'a':{'$ref':'urn:x#/$defs/d'},'b':{'$ref':'urn:x'},"
     "'c':{'$ref':'urn:xy'}},'$defs':{'d':{}}}",
     "{'properties':{'a':{'$ref':'#/$defs/tool0/$defs/d'},'b':{'$ref':'#/$defs/tool0'},"
     "'c':{'$ref':'urn:xy'}},'$defs':{'d':{}},'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{'$ref':'#T'}},'$defs':{'k':{'$anchor':'T','enum':['A']}}}",
     "{'properties':{'a':{'$ref':'#/$defs/tool0/$defs/k'}},'$defs':{'k':{'enum':['A']}},"
     "'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{'$dynamicRef':'#T'}},'$defs':{'k/%~':{'$dynamicAnchor':'T'}}}",
     "{'properties':{'a':{'$ref':'#/$defs/tool0/$defs/k~1%25~0'}},'$defs':{'k/%~':{}},"
     "'type':'object','additionalProperties':false}"},
    {"{'properties':{'a':{'$ref':'http://e.x/k'},'b':{'$ref':'http://e.x/k#/$defs/q'},"
     "'c':{'$ref':'http://e.x/k#n'}},'$defs':{'k':{'$id':'http://e.x/k','anyOf':[{'$ref':"
     "'#/$defs/q'},{'$anchor':'n'}],'$defs':{'q':{}}}}}",
     "{'properties':{'a':{'$ref':'#/$defs/tool0/$defs/k'},'b':{'$ref':"
     "'#/$defs/tool0/$defs/k/$defs/q'},'c':{'$ref':'#/$defs/tool0/$defs/k/anyOf/1'}},'$defs':"
     "{'k':{'anyOf':[{'$ref':'#/$defs/tool0/$defs/k/$defs/q'},{}],'$defs':{'q':{}}}},"
     "'type':'object','additionalProperties':false}"},
    {"{'properties':{'$id':{'type':'string'},'a':{'$ref':'#nobody'}}}",
     "{'properties':{'$id':{'type':'string'},'a':{'$ref':'#nobody'}},'type':'object',"
     "'additionalProperties':false}"},
    /* A constant or default is data, not a schema. A property may have a keyword's name. */
    {"{'properties':{'a':{'const':{'$ref':'#'},'default':{'properties':{}}}}}",
     "{'properties':{'a':{'const':{'$ref':'#'},'default':{'properties':{}}}},'type':'object',"
     "'additionalProperties':false}"},
    {"{'properties':{'const':{'$ref':'#/$defs/d'},'enum':{'properties':{'x':{}}},"
     "'$ref':{'type':'string'}},'$defs':{'d':{}}}",
     "{'properties':{'const':{'$ref':'#/$defs/tool0/$defs/d'},'enum':{'properties':{'x':{}},"
     "'additionalProperties':false},'$ref':{'type':'string'}},'$defs':{'d':{}},'type':'object',"
     "'additionalProperties':false}"},
};

/* Copies `s` to `out` with ' replaced by ". */
static const char *quoted(const char *s, char *out)
{
    size_t n = 0;
    for (; s[n]; n++)
        out[n] = s[n] == '\'' ? '"' : s[n];
    out[n] = '\0';
    return out;
}

static void test_definitions(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char in[1024], want[1024];
        const char *parameters = cases[i].parameters ? quoted(cases[i].parameters, in) : NULL;
        json_t *tools = tools_of(&parameters, 1);
        json_t *before = json_deep_copy(tools);
        json_t *whole = tool_schema_of_calls(tools, STR(""), false);
        assert_non_null(whole);
        const json_t *own = json_object_get(json_object_get(whole, "$defs"), "tool0");
        json_t *expected = json_loads(quoted(cases[i].want, want), 0, NULL);
        assert_non_null(expected);
        char *got = json_dumps(own, JSON_COMPACT);
        if (!json_equal(own, expected))
            fail_msg("%s: %s, not %s", parameters ? parameters : "none", got, want);
        assert_true(json_equal(tools, before)); /* the request's own tools are not changed */
        free(got);
        json_decref(expected);
        json_decref(whole);
        json_decref(before);
        json_decref(tools);
    }
}

static void test_two_tools_of_one_definition(void **state)
{
    const char *parameters[] = {
        "{\"properties\":{\"v\":{\"$ref\":\"#/$defs/D\"}},\"$defs\":{\"D\":{\"type\":\"string\"}}}",
        "{\"properties\":{\"v\":{\"$ref\":\"#/$defs/"
        "D\"}},\"$defs\":{\"D\":{\"type\":\"boolean\"}}}"};
    json_t *tools = tools_of(parameters, 2);
    json_t *whole = tool_schema_of_calls(tools, STR(""), false);
    for (size_t i = 0; i < 2; i++) {
        char name[32], ref[64];
        const char *type;
        snprintf(name, sizeof name, "tool%zu", i);
        snprintf(ref, sizeof ref, "#/$defs/tool%zu/$defs/D", i);
        json_t *own = json_object_get(json_object_get(whole, "$defs"), name);
        const char *moved;
        assert_int_equal(json_unpack(own, "{s:{s:{s:s}},s:{s:{s:s}}}", "properties", "v", "$ref",
                                     &moved, "$defs", "D", "type", &type),
                         0);
        assert_string_equal(moved, ref);
        assert_string_equal(type, i ? "boolean" : "string");
    }
    assert_null(json_object_get(whole, "maxItems"));
    json_decref(whole);
    whole = tool_schema_of_calls(tools, STR("f1"), false);
    assert_int_equal(json_array_size(json_object_get(json_object_get(whole, "items"), "anyOf")), 1);
    assert_int_equal(json_integer_value(json_object_get(whole, "maxItems")), 1);
    assert_int_equal(json_object_size(json_object_get(whole, "$defs")), 1);
    json_decref(whole);
    whole = tool_schema_of_calls(tools, STR(""), true);
    assert_int_equal(json_integer_value(json_object_get(whole, "maxItems")), 1);
    json_decref(whole);
    assert_null(tool_schema_of_calls(tools, STR("f2"), false));
    assert_null(tool_schema_of_calls(NULL, STR(""), false));
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_two_tools_of_one_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
