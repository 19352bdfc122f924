/* Keeps the tools of a request in one form, and the origin of each tool, so that answers use the
 * client's names.
 * Parsers of fields (fields/tools.c, fields/responses.c, fields/messages.c) build the list
 * between `tool_set_begin` and `tool_set_end`. Templates, grammars and parsers read `p->tools`.
 * The dialects call `tool_origin_of`.
 * Everything is in `p->own`, so it is freed with `params`. `index_names` must run after each
 * change of the list. The functions are pure. Any thread may use them, but only one thread per
 * `params`. */
#include "gateway/tools/set.h"

#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/tools/kinds.h"

/* These names are the members of `p->own`. */
#define LIST    "tools"
#define ORIGINS "origins"
#define LEFT    "left out"
/* The following members are indexes by name. They give the position in the list, and the full
 * name of a namespace's function by its short name. They also give the type of a tool that was
 * left out. */
#define NAMES      "places"
#define SHORTS     "shorts"
#define LEFT_NAMES "left names"

enum { MAX_LEFT_OUT = 16, MAX_TYPE_SHOWN = 40 };

static struct str text_of(const json_t *object, const char *key)
{
    return params_json_str(json_object_get(object, key));
}

/* ---- the client's words for a call ---- */

static const json_t *origin(const struct params *p, struct str name)
{
    return json_object_getn(json_object_get(p->own, ORIGINS), name.ptr, name.len);
}

struct tool_origin tool_origin_of(const struct params *p, struct str name)
{
    const json_t *o = origin(p, name);
    if (!o)
        return (struct tool_origin){TOOL_IS_FUNCTION, name, {0}};
    return (struct tool_origin){(enum tool_form)json_integer_value(json_object_get(o, "form")),
                                text_of(o, "name"), text_of(o, "space")};
}

struct str tool_set_grammar(const struct params *p, struct str name)
{
    const json_t *o = origin(p, name);
    return o ? text_of(o, "lark") : (struct str){0};
}

/* ---- making the list ---- */

void tool_set_begin(struct params *p)
{
    if (!p->own)
        p->own = json_object();
    json_object_set_new(p->own, LIST, json_array());
    json_object_set_new(p->own, ORIGINS, json_object());
    json_object_set_new(p->own, LEFT, json_array());
    json_object_set_new(p->own, LEFT_NAMES, json_object());
}

void tool_set_add(struct params *p, json_t *tool)
{
    json_array_append(json_object_get(p->own, LIST), tool);
}

static void add_owned(struct params *p, json_t *function)
{
    json_array_append_new(json_object_get(p->own, LIST),
                          json_pack("{s:s,s:o}", "type", "function", "function", function));
}

static void set_given(json_t *function, const char *key, json_t *v)
{
    if (v && !json_is_null(v))
        json_object_set(function, key, v);
}

void tool_set_add_function(struct params *p, const json_t *name, json_t *description,
                           json_t *parameters)
{
    json_t *function = json_pack("{s:O}", "name", name);
    set_given(function, "description", description);
    set_given(function, "parameters", parameters);
    add_owned(p, function);
}

static json_t *flat_name(const json_t *space, const json_t *name)
{
    return json_sprintf("%s__%s", json_string_value(space), json_string_value(name));
}

static json_t *remember(struct params *p, const char *name, enum tool_form form,
                        const json_t *own_name)
{
    json_t *o = json_pack("{s:i,s:O}", "form", (int)form, "name", own_name);
    json_object_set_new(json_object_get(p->own, ORIGINS), name, o);
    return o;
}

/* Returns the description of a custom tool. The description includes the grammar of the input,
 * so that the model can follow it. */
static json_t *described(const json_t *tool, const char *syntax, const json_t *definition)
{
    struct strbuf b;
    struct str own = text_of(tool, "description");
    strbuf_init(&b, 0);
    strbuf_append_str(&b, own);
    if (definition) {
        strbuf_printf(&b, "%sThe input is a text that follows this %s:\n", own.len ? "\n\n" : "",
                      strcmp(syntax, "lark") == 0 ? "Lark grammar" : "regular expression");
        strbuf_append_str(&b, params_json_str(definition));
    }
    struct str s = strbuf_str(&b);
    json_t *out = json_stringn(s.ptr, s.len);
    strbuf_fini(&b);
    return out;
}

/* Returns true when the regex has alternatives outside of brackets. In that case each anchor
 * belongs to one alternative. */
static bool has_choice(struct str regex)
{
    uint32_t depth = 0;
    bool in_class = false;
    for (size_t i = 0; i < regex.len; i++) {
        const char c = regex.ptr[i];
        if (c == '\\')
            i++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(' || c == ')')
            depth += c == '(' ? 1 : depth > 0 ? UINT32_MAX : 0;
        else if (c == '|' && depth == 0)
            return true;
    }
    return false;
}

/* Returns true for a $ at the end that no backslash escapes. */
static bool ends_anchored(struct str regex)
{
    size_t n_escapes = 0;
    if (regex.len == 0 || regex.ptr[regex.len - 1] != '$')
        return false;
    while (n_escapes + 1 < regex.len && regex.ptr[regex.len - 2 - n_escapes] == '\\')
        n_escapes++;
    return n_escapes % 2 == 0;
}

/* Returns the regex as a pattern for the whole text. The regex may have anchors of its own.
 * Patterns of a schema follow ECMA-262, where named groups have no P as in Python. */
static json_t *whole_pattern(struct str regex)
{
    struct strbuf b;
    if (!has_choice(regex)) {
        if (regex.len > 0 && regex.ptr[0] == '^')
            regex = (struct str){regex.ptr + 1, regex.len - 1};
        regex.len -= ends_anchored(regex);
    }
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "^(?:");
    for (size_t i = 0; i < regex.len; i++) {
        const char *at = regex.ptr + i;
        const bool is_escape = *at == '\\' && i + 1 < regex.len;
        strbuf_append(&b, at, is_escape ? 2 : 1);
        i += is_escape;
        if (regex.len - i >= 4 && !is_escape && memcmp(at, "(?P<", 4) == 0) {
            strbuf_append_c(&b, "?<");
            i += 3;
        }
    }
    strbuf_append_c(&b, ")$");
    const struct str s = strbuf_str(&b);
    json_t *out = json_stringn(s.ptr, s.len);
    strbuf_fini(&b);
    return out;
}

bool tool_set_add_custom(struct params *p, const json_t *tool, size_t i, struct api_error *e)
{
    const json_t *format = json_object_get(tool, "format"), *name = json_object_get(tool, "name");
    const char *type = json_string_value(json_object_get(format, "type"));
    /* chat nests the grammar one level deeper */
    const json_t *inner = json_object_get(format, "grammar");
    const json_t *of = json_text_is_object(inner) ? inner : format;
    const char *syntax = json_string_value(json_object_get(of, "syntax"));
    json_t *definition = json_object_get(of, "definition");
    const bool has_format = format && !json_is_null(format);
    const bool is_grammar = has_format && type && strcmp(type, "grammar") == 0;
    if (has_format && !is_grammar && (!type || strcmp(type, "text") != 0))
        return api_error_set(e, 400, "tools", "tools[%zu].format must be of type text or grammar.",
                             i);
    if (is_grammar && (!json_is_string(definition) || !syntax ||
                       (strcmp(syntax, "lark") != 0 && strcmp(syntax, "regex") != 0)))
        return api_error_set(e, 400, "tools",
                             "tools[%zu].format must have a syntax (\"lark\" or \"regex\") and a "
                             "definition (a string).",
                             i);
    json_t *input = json_pack("{s:s}", "type", "string");
    json_t *o = remember(p, json_string_value(name), TOOL_IS_CUSTOM, name);
    if (is_grammar && strcmp(syntax, "lark") == 0)
        json_object_set(o, "lark", definition);
    if (is_grammar && strcmp(syntax, "regex") == 0)
        json_object_set_new(input, "pattern", whole_pattern(params_json_str(definition)));
    add_owned(p, json_pack("{s:O,s:o,s:{s:s,s:{s:o},s:[s],s:b}}", "name", name, "description",
                           described(tool, syntax, is_grammar ? definition : NULL), "parameters",
                           "type", "object", "properties", "input", input, "required", "input",
                           "additionalProperties", 0));
    return true;
}

bool tool_set_add_namespace(struct params *p, const json_t *tool, size_t i, struct api_error *e)
{
    const json_t *space = json_object_get(tool, "name"), *list = json_object_get(tool, "tools");
    if (!json_is_array(list))
        return api_error_set(e, 400, "tools", "tools[%zu].tools must be a list.", i);
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *one = json_array_get(list, k), *name = json_object_get(one, "name");
        const char *type = json_string_value(json_object_get(one, "type"));
        if (!type || json_string_length(name) == 0)
            return api_error_set(e, 400, "tools",
                                 "tools[%zu].tools[%zu] must have a type and a name.", i, k);
        char where[64];
        snprintf(where, sizeof where, "tools[%zu].tools[%zu]", i, k);
        if (strcmp(type, "custom") == 0) {
            tool_set_leave_out(p, type, NULL);
            continue;
        }
        if (strcmp(type, "function") != 0) {
            if (!tool_set_pass_over(
                    p, where, type, NULL,
                    "A namespace can only have functions: {\"type\": \"function\", \"name\": …}.",
                    e))
                return false;
            continue;
        }
        strncat(where, ".parameters", sizeof where - strlen(where) - 1);
        if (!tool_set_check_schema(json_object_get(one, "parameters"), where, e))
            return false;
        json_t *flat = flat_name(space, name);
        json_t *o = remember(p, json_string_value(flat), TOOL_IS_NAMESPACED, name);
        json_object_set(o, "space", (json_t *)space);
        tool_set_add_function(p, flat, json_object_get(one, "description"),
                              json_object_get(one, "parameters"));
        json_decref(flat);
    }
    return true;
}

void tool_set_leave_out(struct params *p, const char *type, const json_t *name)
{
    json_t *list = json_object_get(p->own, LEFT);
    if (!list) {
        tool_set_begin(p);
        list = json_object_get(p->own, LEFT);
    }
    if (json_is_string(name))
        json_object_set_new(json_object_get(p->own, LEFT_NAMES), json_string_value(name),
                            json_string(type));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), type) == 0)
            return;
    if (json_array_size(list) < MAX_LEFT_OUT)
        json_array_append_new(list, json_string(type));
}

bool tool_set_pass_over(struct params *p, const char *where, const char *type, const json_t *name,
                        const char *takes, struct api_error *e)
{
    if (tool_kind_of(type) == TOOL_KIND_UNKNOWN)
        return api_error_set(
            e, 400, "tools",
            "%s is of type \"%.40s\", which this server does not know, so the model would never "
            "see it. %s Tools that a provider's server runs (such as web_search, mcp and "
            "code_interpreter) may stay: this server leaves them out.",
            where, type, takes);
    tool_set_leave_out(p, type, name);
    return true;
}

bool tool_set_check_schema(const json_t *parameters, const char *where, struct api_error *e)
{
    if (!parameters || json_is_null(parameters) || json_text_is_object(parameters))
        return true;
    if (json_is_string(parameters))
        return api_error_set(e, 400, "tools",
                             "%s must be a JSON schema (an object), got a string. Send the schema "
                             "as an object, not as JSON text in a string.",
                             where);
    return api_error_set(
        e, 400, "tools",
        "%s must be a JSON schema (an object), got %s. Leave it out for a tool without arguments.",
        where,
        json_is_array(parameters)     ? "a list"
        : json_is_boolean(parameters) ? "a boolean"
                                      : "a number");
}

/* Returns the object with the members of a tool. In chat this object is a member with the type's
 * name. */
static const json_t *said(const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *inner = type ? json_object_get(tool, type) : NULL;
    return json_text_is_object(inner) ? inner : tool;
}

void tool_set_place(const struct params *p, struct str name, char *out, size_t cap)
{
    const json_t *list = json_object_get(p->body, "tools");
    const struct tool_origin o = tool_origin_of(p, name);
    snprintf(out, cap, "tools");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tool = said(json_array_get(list, i)), *own = json_object_get(tool, "tools");
        const bool is_there = str_eq(text_of(tool, "name"), o.space.len > 0 ? o.space : o.name);
        if (is_there && o.space.len == 0) {
            snprintf(out, cap, "tools[%zu]", i);
            return;
        }
        for (size_t k = 0; is_there && k < json_array_size(own); k++) {
            if (!str_eq(text_of(json_array_get(own, k), "name"), o.name))
                continue;
            snprintf(out, cap, "tools[%zu].tools[%zu]", i, k);
            return;
        }
    }
}

/* ---- looking tools up ---- */

static struct str name_at(const struct params *p, size_t i)
{
    return text_of(json_object_get(json_array_get(p->tools, i), "function"), "name");
}

/* Builds the indexes by name. Returns false when two tools have the same name, so that a call
 * would be ambiguous for the client. `twice` is the position of the second tool. */
static bool index_names(struct params *p, size_t *twice)
{
    json_t *at = json_object(), *shorts = json_object();
    bool ok = true;
    json_object_set_new(p->own, NAMES, at);
    json_object_set_new(p->own, SHORTS, shorts);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const struct str name = name_at(p, i);
        const json_t *o = origin(p, name), *own_name = json_object_get(o, "name");
        const bool is_there = json_object_getn(at, name.ptr, name.len) != NULL;
        if (is_there && o && ok) {
            *twice = i;
            ok = false;
        }
        if (!is_there)
            json_object_setn_new(at, name.ptr, name.len, json_integer((json_int_t)i));
        if (o && json_object_get(o, "space") &&
            !json_object_get(shorts, json_string_value(own_name)))
            json_object_set_new(shorts, json_string_value(own_name),
                                json_stringn(name.ptr, name.len));
    }
    return ok;
}

bool tool_set_end(struct params *p, struct api_error *e)
{
    json_t *list = json_object_get(p->own, LIST);
    size_t i = 0;
    p->tools = json_array_size(list) > 0 ? list : NULL;
    if (index_names(p, &i))
        return true;
    const struct str name = name_at(p, i);
    return api_error_set(e, 400, "tools",
                         "tools has two tools called \"%.*s\", and at least one of them is custom "
                         "or in a namespace, so a call would be ambiguous. Rename one of them.",
                         (int)(name.len < 64 ? name.len : 64), name.ptr);
}

/* ---- choosing ---- */

static struct str listed(const struct params *p, const char *name)
{
    const json_t *at = json_object_get(json_object_get(p->own, NAMES), name);
    return at ? name_at(p, (size_t)json_integer_value(at)) : (struct str){0};
}

struct str tool_set_name(const struct params *p, const json_t *name, const json_t *space)
{
    const char *own = json_string_value(name);
    if (!own || !*own)
        return (struct str){0};
    /* a tool without a namespace has precedence over a tool within one */
    if (json_string_length(space) == 0) {
        const struct str found = listed(p, own);
        const json_t *whole = json_object_get(json_object_get(p->own, SHORTS), own);
        return found.len > 0 || !whole ? found : listed(p, json_string_value(whole));
    }
    json_t *flat = flat_name(space, name);
    const struct str found = listed(p, json_string_value(flat));
    const bool is_so = str_eq(tool_origin_of(p, found).space, params_json_str(space));
    json_decref(flat);
    return is_so ? found : (struct str){0};
}

const char *tool_set_left_type(const struct params *p, const json_t *name)
{
    return json_is_string(name) ? json_string_value(json_object_get(
                                      json_object_get(p->own, LEFT_NAMES), json_string_value(name)))
                                : NULL;
}

/* Keeps only the tools that are among the keys of `names`, or with `kept` false only the other
 * tools. The order stays the same. */
static void keep(struct params *p, const json_t *names, bool kept)
{
    json_t *list = json_array();
    size_t ignored = 0;
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const struct str name = name_at(p, i);
        if ((json_object_getn(names, name.ptr, name.len) != NULL) == kept)
            json_array_append(list, json_array_get(p->tools, i));
    }
    json_object_set_new(p->own, LIST, list);
    p->tools = json_array_size(list) > 0 ? list : NULL;
    (void)index_names(p, &ignored); /* removing tools adds no duplicate names */
}

bool tool_set_allow(struct params *p, const json_t *list, struct api_error *e)
{
    json_t *names = json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(one, "type"));
        const json_t *inner = type ? json_object_get(one, type) : NULL;
        const json_t *of = json_text_is_object(inner) ? inner : one;
        const json_t *name = json_object_get(of, "name");
        const struct str found = tool_set_name(p, name, json_object_get(of, "namespace"));
        if (found.len > 0)
            json_object_setn_new(names, found.ptr, found.len, json_true());
        else if (type && tool_kind_of(type) != TOOL_KIND_UNKNOWN &&
                 (!name || tool_set_left_type(p, name)))
            tool_set_leave_out(p, type, NULL);
        else
            ok = api_error_set(e, 400, "tool_choice",
                               "tool_choice allows a tool \"%.64s\", which is not in tools.",
                               json_is_string(name) ? json_string_value(name) : "");
    }
    if (ok)
        keep(p, names, true);
    json_decref(names);
    return ok;
}

void tool_set_withdraw(struct params *p, const json_t *names)
{
    if (json_object_size(names) > 0 && p->tools)
        keep(p, names, false);
    if (!p->tools && p->tool_choice == TOOL_CHOICE_AUTO)
        p->tool_choice = TOOL_CHOICE_NONE;
}

void tool_set_left_out(const struct params *p, struct strbuf *out)
{
    const json_t *list = json_object_get(p->own, LEFT);
    for (size_t i = 0; i < json_array_size(list); i++) {
        strbuf_append_c(out, i > 0 ? "," : "");
        const char *type = json_string_value(json_array_get(list, i));
        for (size_t n = 0; type[n] && n < MAX_TYPE_SHOWN; n++) {
            const char c = type[n];
            const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                  (c >= '0' && c <= '9') || c == '_';
            strbuf_append(out, is_plain ? &c : "_", 1);
        }
    }
}
