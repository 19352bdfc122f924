/* Defines the fields about tools, and about the format of the answer.
 * read.c reads a body by these rows. Parsers write into `params`; tools/set.c collects the tools
 * and tools/grammar_source.c makes the grammar.
 * The order of rows matters: tool_choice follows tools. All values are borrowed from the body or
 * `params.own`. The functions are pure, and usable on any thread. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"
#include "gateway/fields/tools.h"
#include "gateway/tools/grammar_source.h"
#include "gateway/tools/kinds.h"
#include "gateway/tools/set.h"

/* Checks the members of a format. A member that only other servers read, such as a schema next
 * to json_object, is refused and not ignored silently. llguidance checks the members of a
 * structural tag. */
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

/* Reads guided_json, guided_regex and similar fields, which vLLM had before structured_outputs. */
static bool parse_guided(struct params *p, const json_t *v, const struct field_context *c)
{
    return grammar_from_value(p, c->name, c->name + strlen("guided_"), v, c->e);
}

static bool read_tool(struct params *p, json_t *tool, size_t i, const struct field_context *c)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *inner = type ? json_object_get(tool, type) : NULL;
    if (!type || !*type)
        return api_error_set(c->e, 400, c->name,
                             "tools[%zu] must be an object of type \"function\" or \"custom\".", i);
    char where[64];
    snprintf(where, sizeof where, "tools[%zu]", i);
    if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
        return tool_set_pass_over(p, where, type, json_object_get(inner, "name"),
                                  "Describe a tool as {\"type\": \"function\", \"function\": "
                                  "{\"name\": …}}, or use the type \"custom\".",
                                  c->e);
    if (json_string_length(json_object_get(inner, "name")) == 0)
        return api_error_set(c->e, 400, c->name, "tools[%zu].%s must have a name.", i, type);
    if (strcmp(type, "custom") == 0)
        return tool_set_add_custom(p, inner, i, c->e);
    snprintf(where, sizeof where, "tools[%zu].function.parameters", i);
    if (!tool_set_check_schema(json_object_get(inner, "parameters"), where, c->e))
        return false;
    tool_set_add(p, tool);
    return true;
}

static size_t count_tools(const json_t *list)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        n += json_array_size(json_object_get(json_array_get(list, i), "tools"));
    return n;
}

bool field_tools(struct params *p, const json_t *v, const struct field_context *c,
                 field_read_tool read)
{
    if (!json_is_array(v))
        return field_wrong_type(c->e, c->name, "a list", v);
    const size_t n = count_tools(v);
    if (n > TOOL_SET_MAX)
        return api_error_set(c->e, 400, c->name,
                             "tools has %zu tools, including those in namespaces, but at most %u "
                             "are allowed. Leave out tools that this request does not need.",
                             n, TOOL_SET_MAX);
    tool_set_begin(p);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!read(p, json_array_get(v, i), i, c))
            return false;
    return tool_set_end(p, c->e);
}

/* Reads the tools. An empty list means no tools. */
static bool parse_tools(struct params *p, const json_t *v, const struct field_context *c)
{
    return field_tools(p, v, c, read_tool);
}

static bool choose_word(struct params *p, const char *word, const struct field_context *c)
{
    if (word && strcmp(word, "none") == 0)
        p->tool_choice = TOOL_CHOICE_NONE;
    else if (word && strcmp(word, "auto") == 0)
        p->tool_choice = p->tools ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    else if (word && strcmp(word, "required") == 0)
        p->tool_choice = TOOL_CHOICE_REQUIRED;
    else
        return api_error_set(
            c->e, 400, c->name,
            "tool_choice must be \"none\", \"auto\" or \"required\", or an object that names a "
            "function or a custom tool, or is of type allowed_tools.");
    return true;
}

bool field_force_tool(struct params *p, const json_t *name, const json_t *space,
                      const struct field_context *c)
{
    const char *left = tool_set_left_type(p, name);
    p->tool_choice = TOOL_CHOICE_REQUIRED;
    p->tool_name = tool_set_name(p, name, space);
    /* a request without any tools is refused later */
    if (p->tool_name.len > 0 || (!p->tools && !left))
        return true;
    if (left && tool_kind_of(left) == TOOL_KIND_CLIENT)
        return api_error_set(
            c->e, 400, c->name,
            "tool_choice: the tool \"%.64s\" is of type \"%.40s\", whose schema this server does "
            "not know. Describe the tool as a function with a schema.",
            json_string_value(name), left);
    if (left)
        return api_error_set(c->e, 400, c->name,
                             "tool_choice: the tool \"%.64s\" is of type \"%.40s\", which this "
                             "server does not run. Choose a tool that the client runs.",
                             json_string_value(name), left);
    return api_error_set(c->e, 400, c->name,
                         "tool_choice names the tool \"%.64s\", which is not in tools.",
                         json_string_value(name));
}

/* Chooses the tool that tool_choice names. A tool that a server would run is not in the list, so
 * it cannot be forced. */
static bool choose_tool(struct params *p, const json_t *of, const char *type,
                        const struct field_context *c)
{
    const json_t *name = json_object_get(of, "name");
    if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
        return api_error_set(c->e, 400, c->name,
                             "tool_choice asks for a tool of type \"%.40s\", but this server runs "
                             "no tools. Choose a function or a custom tool, which the client runs.",
                             type);
    if (json_string_length(name) == 0)
        return api_error_set(c->e, 400, c->name, "tool_choice of type \"%s\" must have a name.",
                             type);
    return field_force_tool(p, name, json_object_get(of, "namespace"), c);
}

/* Returns the type of a tool_choice, or NULL for a word. As in vLLM, a named function needs no
 * type. */
static const char *type_of_choice(const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    return !type && json_text_is_object(json_object_get(v, "function")) ? "function" : type;
}

bool field_tool_choice(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *type = type_of_choice(v);
    const json_t *inner = type ? json_object_get(v, type) : NULL;
    const json_t *of = json_text_is_object(inner) ? inner : v;
    if (!type)
        return choose_word(p, json_string_value(v), c);
    if (strcmp(type, "allowed_tools") != 0)
        return choose_tool(p, of, type, c);
    if (!json_is_array(json_object_get(of, "tools")))
        return api_error_set(c->e, 400, c->name,
                             "tool_choice of type \"allowed_tools\" must have a list of tools.");
    return tool_set_allow(p, json_object_get(of, "tools"), c->e) &&
           choose_word(p, json_string_value(json_object_get(of, "mode")), c);
}

/* Reads `tool_choice`. This row must follow tools, because it refers to them. */
static bool parse_tool_choice(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *type = type_of_choice(v);
    return field_tool_choice(p, v, c) &&
           field_known_members(c, c->name, v,
                               (const char *[]){"type", type ? type : "function", NULL}) &&
           field_known_members(c, "tool_choice.function", json_object_get(v, "function"),
                               (const char *[]){"name", NULL});
}

#define ROW_GUIDED(nm, what)                                                                       \
    {                                                                                              \
        ROW(nm, FIELD_CUSTOM, BOTH), .parse = parse_guided, .why = "structured_outputs." what      \
    }

static const struct field rows[] = {
    ROW_CUSTOM(response_format, BOTH, "text, json_object, json_schema, structural_tag"),
    ROW_CUSTOM(structured_outputs, GENERATES,
               "one of json, regex, choice, grammar (Lark or GBNF), json_object, structural_tag"),
    ROW_GUIDED("guided_json", "json"),
    ROW_GUIDED("guided_regex", "regex"),
    ROW_GUIDED("guided_choice", "choice"),
    ROW_GUIDED("guided_grammar", "grammar"),
    ROW_CUSTOM(tools, CHAT | TOKENIZE,
               "functions and custom tools; tools of a provider's server are left out"),
    ROW_CUSTOM(tool_choice, CHAT,
               "none, required, a function or a custom tool, allowed_tools; auto with "
               "--enable-auto-tool-choice"),
    ROW_BOOL(parallel_tool_calls, CHAT | RESPONSES),
};

FIELD_TABLE(tools);
