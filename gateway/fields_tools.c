/* Tools, and the shape that an answer has to have. */
#include <stdio.h>
#include <string.h>

#include "gateway/fields.h"
#include "gateway/grammar_source.h"

/* What a client hangs on a format in hope of a shape, such as the schema that others read beside
 * json_object, is not lost in silence. A structural tag's members are llguidance's to judge. */
bool field_known_format(const struct field_context *c, const char *name, const json_t *v,
                        bool is_flat)
{
    static const char *const bare[] = {"type", NULL},
                             *const nested[] = {"type", "json_schema", NULL},
                             *const schema[] = {"type",   "name",   "description",
                                                "schema", "strict", NULL};
    const char *type = json_string_value(json_object_get(v, "type"));
    char inner[64];
    if (!type || strcmp(type, "structural_tag") == 0)
        return true;
    if (strcmp(type, "json_schema") != 0)
        return field_known_members(c, name, v, bare);
    if (is_flat)
        return field_known_members(c, name, v, schema);
    snprintf(inner, sizeof inner, "%s.json_schema", name);
    return field_known_members(c, name, v, nested) &&
           field_known_members(c, inner, json_object_get(v, "json_schema"), schema + 1);
}

static bool parse_response_format(struct params *p, const json_t *v, const struct field_context *c)
{
    return field_known_format(c, c->name, v, false) &&
           grammar_from_response_format(p, c->name, v, c->e);
}

static bool parse_structured_outputs(struct params *p, const json_t *v,
                                     const struct field_context *c)
{
    return grammar_from_structured_outputs(p, c->name, v, c->e);
}

/* guided_WHAT, which vLLM had before structured_outputs. */
static bool parse_guided(struct params *p, const json_t *v, const struct field_context *c)
{
    return grammar_from_value(p, c->name, c->name + strlen("guided_"), v, c->e);
}

static bool check_tool(const json_t *tool, size_t i, const struct field_context *c)
{
    const json_t *function = json_object_get(tool, "function");
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || strcmp(type, "function") != 0)
        return api_error_set(c->e, 400, c->name,
                             "tools[%zu] must be an object of type \"function\".", i);
    if (json_string_length(json_object_get(function, "name")) == 0)
        return api_error_set(c->e, 400, c->name, "tools[%zu].function must have a name.", i);
    return true;
}

bool field_tools(struct params *p, const json_t *v, const struct field_context *c,
                 field_check_tool check)
{
    if (!json_is_array(v))
        return field_wrong_type(c->e, c->name, "a list", v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!check(json_array_get(v, i), i, c))
            return false;
    if (json_array_size(v) > 0)
        p->tools = (json_t *)v;
    return true;
}

static bool parse_tools(struct params *p, const json_t *v, const struct field_context *c)
{
    if (json_is_array(v) && json_array_size(v) == 0)
        return api_error_set(c->e, 400, c->name, "tools must not be empty: leave it out.");
    return field_tools(p, v, c, check_tool);
}

/* Behind tools: what it chooses from is known. */
static bool parse_tool_choice(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *word = json_string_value(v);
    const json_t *name = json_object_get(json_object_get(v, "function"), "name");
    if (word && strcmp(word, "none") == 0)
        p->tool_choice = TOOL_CHOICE_NONE;
    else if (word && strcmp(word, "auto") == 0)
        p->tool_choice = TOOL_CHOICE_AUTO;
    else if ((word && strcmp(word, "required") == 0) || json_string_length(name) > 0)
        p->tool_choice = TOOL_CHOICE_REQUIRED;
    else
        return api_error_set(c->e, 400, c->name,
                             "tool_choice must be \"none\", \"auto\", \"required\", or "
                             "{\"type\": \"function\", \"function\": {\"name\": …}}.");
    if (name)
        p->tool_name = params_json_str(name);
    return field_known_members(c, c->name, v, (const char *[]){"type", "function", NULL}) &&
           field_known_members(c, "tool_choice.function", json_object_get(v, "function"),
                               (const char *[]){"name", NULL});
}

#define ROW_GUIDED(nm, what)                                                                       \
    {                                                                                              \
        ROW(nm, FIELD_CUSTOM, BOTH), .parse = parse_guided, .why = "structured_outputs." what      \
    }

static const struct field rows[] = {
    ROW_CUSTOM(response_format, BOTH, "text, json_object, json_schema, structural_tag"),
    ROW_CUSTOM(structured_outputs, DRAWS,
               "one of json, regex, choice, grammar (Lark or GBNF), json_object, structural_tag"),
    ROW_GUIDED("guided_json", "json"),
    ROW_GUIDED("guided_regex", "regex"),
    ROW_GUIDED("guided_choice", "choice"),
    ROW_GUIDED("guided_grammar", "grammar"),
    ROW_CUSTOM(tools, CHAT | TOKENIZE, "functions"),
    ROW_CUSTOM(tool_choice, CHAT,
               "none, required, a function; auto with --enable-auto-tool-choice"),
    ROW_BOOL(parallel_tool_calls, CHAT | RESPONSES),
};

FIELD_TABLE(tools);
