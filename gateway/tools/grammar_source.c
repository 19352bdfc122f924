/* Turns the requested form of an answer into a grammar kind and source for the workers.
 * The parsers of fields (fields/) call one function for response_format, structured_outputs or
 * guided_*. prepare.c then adds the grammar of forced tool calls, and the reasoning before a
 * grammar.
 * At most one grammar is kept in `params.sampling`. A second grammar is an error that names both
 * fields. Sources are copied to `params.arena`. The functions are pure, and usable on any
 * thread. */
#include "gateway/tools/grammar_source.h"

#include <stdlib.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/tools/schema.h"
#include "gateway/tools/set.h"
#include "proto/limits.h"

#define ANY_OBJECT "{\"type\":\"object\"}"

static bool keep(struct params *p, const char *name, enum grammar_kind kind, struct str source,
                 struct api_error *e)
{
    if (p->grammar_field)
        return api_error_set(
            e, 400, name,
            "%s and %s cannot be used together: an answer can follow only one of them.",
            p->grammar_field, name);
    if (source.len > PROTO_MAX_GRAMMAR_BYTES)
        return api_error_set(e, 400, name,
                             "%s is too long: it has %zu bytes, and at most %u are allowed.", name,
                             source.len, PROTO_MAX_GRAMMAR_BYTES);
    if (source.len == 0)
        return api_error_set(e, 400, name, "%s must not be empty.", name);
    char *copy = arena_try_array(&p->arena, source.len, 1);
    if (!copy)
        return api_error_set(e, 400, name,
                             "%s is too long: the server has no memory for its %zu bytes.", name,
                             source.len);
    memcpy(copy, source.ptr, source.len);
    p->grammar_field = name;
    p->sampling.grammar_kind = kind;
    p->sampling.grammar = (struct str){copy, source.len};
    return true;
}

static bool keep_json(struct params *p, const char *name, enum grammar_kind kind, const json_t *v,
                      struct api_error *e)
{
    char *text = json_text_dump(v, JSON_COMPACT | JSON_ENCODE_ANY);
    bool ok = text ? keep(p, name, kind, (struct str){text, strlen(text)}, e)
                   : api_error_set(e, 500, name, "%s cannot be written as JSON.", name);
    free(text);
    return ok;
}

/* Stores the request's grammar from a schema, given as an object or as its text. */
static bool keep_schema(struct params *p, const char *name, const json_t *v, struct api_error *e)
{
    if (json_is_string(v))
        return keep(p, name, GRAMMAR_JSON_SCHEMA, params_json_str(v), e);
    if (!json_text_is_object(v) && !json_is_boolean(v))
        return api_error_set(e, 400, name, "%s must contain a JSON schema, which is an object.",
                             name);
    return keep_json(p, name, GRAMMAR_JSON_SCHEMA, v, e);
}

static bool keep_text(struct params *p, const char *name, enum grammar_kind kind, const json_t *v,
                      struct api_error *e)
{
    if (!json_is_string(v))
        return api_error_set(e, 400, name, "The regex or grammar in %s must be a string.", name);
    return keep(p, name, kind, params_json_str(v), e);
}

/* Appends a string in Lark's syntax, which is JSON's syntax except that DEL must be escaped too. */
static void append_lark_text(struct strbuf *b, const char *json)
{
    for (const char *del; (del = strchr(json, 0x7F)); json = del + 1) {
        strbuf_append(b, json, (size_t)(del - json));
        strbuf_append_c(b, "\\u007f");
    }
    strbuf_append_c(b, json);
}

/* Stores a choice as a grammar such as start: "a" | "b". */
static bool keep_choice(struct params *p, const char *name, const json_t *v, struct api_error *e)
{
    struct strbuf b;
    bool ok = json_is_array(v) && json_array_size(v) > 0;
    strbuf_init(&b, 0);
    strbuf_append_str(&b, STR("start: "));
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        char *quoted = json_string_length(item) > 0 ? json_dumps(item, JSON_ENCODE_ANY) : NULL;
        ok = quoted != NULL;
        if (i > 0)
            strbuf_append_str(&b, STR(" | "));
        if (quoted)
            append_lark_text(&b, quoted);
        free(quoted);
    }
    ok = ok ? keep(p, name, GRAMMAR_LARK, strbuf_str(&b), e)
            : api_error_set(e, 400, name,
                            "The choice in %s must be a list of strings that are not empty.", name);
    strbuf_fini(&b);
    return ok;
}

bool grammar_from_value(struct params *p, const char *name, const char *what, const json_t *v,
                        struct api_error *e)
{
    if (strcmp(what, "json") == 0)
        return keep_schema(p, name, v, e);
    if (strcmp(what, "regex") == 0)
        return keep_text(p, name, GRAMMAR_REGEX, v, e);
    if (strcmp(what, "choice") == 0)
        return keep_choice(p, name, v, e);
    if (strcmp(what, "grammar") == 0)
        return keep_text(p, name, GRAMMAR_LARK, v, e);
    if (strcmp(what, "json_object") == 0) {
        if (!json_is_true(v))
            return api_error_set(e, 400, name, "The json_object in %s must be true.", name);
        return keep(p, name, GRAMMAR_JSON_SCHEMA, STR(ANY_OBJECT), e);
    }
    if (json_is_string(v))
        return keep(p, name, GRAMMAR_STRUCTURAL_TAG, params_json_str(v), e);
    return keep_json(p, name, GRAMMAR_STRUCTURAL_TAG, v, e);
}

bool grammar_from_response_format(struct params *p, const char *name, const json_t *v,
                                  struct api_error *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type)
        return api_error_set(e, 400, name, "%s must be an object with a type.", name);
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0)
        return grammar_from_value(p, name, "json_object", json_true(), e);
    if (strcmp(type, "structural_tag") == 0)
        return grammar_from_value(p, name, "structural_tag", v, e);
    if (strcmp(type, "json_schema") != 0)
        return api_error_set(e, 400, name,
                             "%s of type \"%.40s\" is not supported. The supported types are text, "
                             "json_object, json_schema and structural_tag.",
                             name, type);
    const json_t *schema = json_object_get(json_object_get(v, "json_schema"), "schema");
    if (!schema)
        return api_error_set(e, 400, name, "%s.json_schema must be an object with a schema.", name);
    /* `strict` makes no difference: the mask always enforces the schema */
    return keep_schema(p, name, schema, e);
}

bool grammar_from_flat_format(struct params *p, const char *name, const json_t *v,
                              struct api_error *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *schema = json_object_get(v, "schema");
    if (!type || strcmp(type, "json_schema") != 0)
        return grammar_from_response_format(p, name, v, e);
    if (!schema)
        return api_error_set(e, 400, name, "%s must be an object with a schema.", name);
    return keep_schema(p, name, schema, e);
}

bool grammar_from_structured_outputs(struct params *p, const char *name, const json_t *v,
                                     struct api_error *e)
{
    static const char *const known[] = {"json",    "regex",       "choice",
                                        "grammar", "json_object", "structural_tag"};
    const json_t *found = NULL;
    const char *what = NULL, *key;
    json_t *value;
    if (!json_text_is_object(v))
        return api_error_set(e, 400, name, "%s must be an object.", name);
    json_object_foreach((json_t *)v, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known && !is_known; i++)
            is_known = strcmp(key, known[i]) == 0;
        if (json_is_null(value) || (json_is_false(value) && strcmp(key, "json") != 0))
            continue; /* this form is not given, or is switched off */
        if (!is_known)
            return api_error_set(e, 400, name, "%s.%.40s is not supported by this server.", name,
                                 key);
        if (what)
            return api_error_set(e, 400, name,
                                 "%s may have only one of json, regex, choice, grammar, "
                                 "json_object and structural_tag, got %s and %s.",
                                 name, what, key);
        what = key;
        found = value;
    }
    if (!what)
        return api_error_set(
            e, 400, name,
            "%s must have one of json, regex, choice, grammar, json_object and structural_tag.",
            name);
    return grammar_from_value(p, name, what, found, e);
}

/* Drops the format of the answer's text, because the answer consists of calls. vLLM does the
 * same. */
static void drop_format(struct params *p)
{
    static const char *const formats[] = {"response_format", "text.format", "output_config.format"};
    for (size_t i = 0; p->grammar_field && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(p->grammar_field, formats[i]) == 0)
            p->grammar_field = NULL;
}

/* Returns true when the schema's root can be an object: the schema states no type, or object is
 * one of its types. */
static bool may_be_object(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    const char *word = json_string_value(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, "object") == 0)
            return true;
    }
    return word ? strcmp(word, "object") == 0 : !json_is_array(type);
}

/* Refuses tools whose schema is not an object's. Arguments are always objects, so no call of
 * such a tool could be valid. */
static bool check_roots(const struct params *p, struct api_error *e)
{
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *function = json_object_get(json_array_get(p->tools, i), "function");
        const json_t *schema = json_object_get(function, "parameters");
        const struct str name = params_json_str(json_object_get(function, "name"));
        char place[64];
        if ((p->tool_name.len > 0 && !str_eq(name, p->tool_name)) || may_be_object(schema))
            continue;
        tool_set_place(p, name, place, sizeof place);
        return api_error_set(e, 400, "tools",
                             "tool_choice: the schema of %s, \"%.*s\", does not have the type "
                             "object, but the arguments of a call are always an object. Give it "
                             "\"type\": \"object\", with the value as one of its properties.",
                             place, (int)(name.len < 64 ? name.len : 64), name.ptr);
    }
    return true;
}

bool grammar_from_tools(struct params *p, struct api_error *e)
{
    if (!check_roots(p, e))
        return false;
    json_t *whole = tool_schema_of_calls(p->tools, p->tool_name, !p->parallel_tool_calls);
    if (!whole)
        return api_error_set(
            e, 400, "tool_choice", "tool_choice names the tool \"%.*s\", which is not in tools.",
            (int)(p->tool_name.len < 64 ? p->tool_name.len : 64), p->tool_name.ptr);
    drop_format(p);
    const struct str own = tool_set_grammar(p, p->tool_name);
    p->answer_is_input = own.len > 0;
    if (p->answer_is_input) {
        json_decref(whole);
        return keep(p, "tool_choice", GRAMMAR_LARK, own, e);
    }
    const bool ok = keep_json(p, "tool_choice", GRAMMAR_JSON_SCHEMA, whole, e);
    json_decref(whole);
    return ok;
}

static json_t *texts(const char *const *list)
{
    json_t *out = json_array();
    for (; *list; list++)
        json_array_append_new(out, json_string(*list));
    return out;
}

bool grammar_after_reasoning(struct params *p, const struct reasoning_marks *m, struct api_error *e)
{
    const char *name = p->grammar_field;
    struct sampling_params *s = &p->sampling;
    if (s->grammar_kind == GRAMMAR_NONE)
        return true;
    json_t *whole = json_pack("{s:o, s:o, s:b, s:i, s:s%}", "open", texts(m->open), "close",
                              texts(m->close), "begun", m->begun, "kind", (int)s->grammar_kind,
                              "source", s->grammar.ptr, s->grammar.len);
    p->grammar_field = NULL; /* the new grammar replaces the one before */
    bool ok = keep_json(p, name, GRAMMAR_AFTER_REASONING, whole, e);
    json_decref(whole);
    return ok;
}
