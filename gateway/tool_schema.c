#include "gateway/tool_schema.h"

#include <stdio.h>
#include <string.h>

#include "gateway/params.h"

enum { MAX_REF = 1024 };

struct walk {
    const char *place; /* "#/$defs/tool3" */
    const char *id;    /* what the tool calls itself; NULL: nothing */
};

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

/* ---- references ---- */

/* "#…", with the tool's own name in front or without, to where the tool lies now. */
static void move_ref(json_t *schema, const char *key, const struct walk *w)
{
    const char *ref = json_string_value(json_object_get(schema, key));
    char moved[MAX_REF];
    if (ref && w->id && strncmp(ref, w->id, strlen(w->id)) == 0 &&
        (ref[strlen(w->id)] == '#' || !ref[strlen(w->id)]))
        ref += strlen(w->id);
    if (!ref || (*ref && *ref != '#') || (ref[0] == '#' && ref[1] && ref[1] != '/'))
        return; /* another document's, or an anchor's */
    const int n = snprintf(moved, sizeof moved, "%s%s", w->place, *ref ? ref + 1 : "");
    if (n > 0 && (size_t)n < sizeof moved)
        json_object_set_new(schema, key, json_string(moved));
}

/* ---- what is closed ---- */

/* Beside one of these a schema says of an object's members elsewhere as well. */
static const char *const elsewhere[] = {"additionalProperties",
                                        "patternProperties",
                                        "unevaluatedProperties",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "$ref",
                                        "$dynamicRef",
                                        "$recursiveRef",
                                        "if",
                                        "then",
                                        "else",
                                        "dependentSchemas",
                                        "dependencies",
                                        "not",
                                        "minProperties",
                                        "propertyNames",
                                        NULL};

static bool says_elsewhere(const json_t *schema)
{
    for (const char *const *key = elsewhere; *key; key++)
        if (json_object_get(schema, *key))
            return true;
    return false;
}

static void close_object(json_t *schema)
{
    if (json_is_object(json_object_get(schema, "properties")) && !says_elsewhere(schema))
        json_object_set_new(schema, "additionalProperties", json_false());
}

/* ---- the walk ---- */

/* Values that are data: nothing in them is a schema. */
static const char *const data_keys[] = {"const",   "enum",     "default", "examples",
                                        "example", "required", NULL};
/* Objects whose members are schemas, whatever they are called. */
static const char *const maps[] = {"properties",       "patternProperties", "$defs", "definitions",
                                   "dependentSchemas", "dependencies",      NULL};
/* Parts of one schema: what they list of an object is not all that it may have. */
static const char *const parts[] = {"allOf",        "if", "then", "else", "not", "dependentSchemas",
                                    "dependencies", NULL};

/* Whether objects are closed: this one and those in it, those in it alone, none. */
enum closing { CLOSE, CLOSE_INSIDE, CLOSE_NONE };

static void walk_schema(json_t *schema, const struct walk *w, enum closing closing);

static void walk_all(json_t *v, const struct walk *w, enum closing closing)
{
    const char *key;
    json_t *one;
    for (size_t i = 0; i < json_array_size(v); i++)
        walk_schema(json_array_get(v, i), w, closing);
    json_object_foreach(v, key, one) walk_schema(one, w, closing);
}

/* Branches of a choice are whole objects where nothing beside the choice lists members. */
static enum closing closing_of(const json_t *schema, const char *key, enum closing outer)
{
    const bool is_choice = strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0;
    if (outer == CLOSE_NONE || is_one_of(key, parts))
        return CLOSE_NONE;
    if (is_choice && (outer == CLOSE_INSIDE || json_object_get(schema, "properties")))
        return CLOSE_INSIDE;
    return CLOSE;
}

static void walk_schema(json_t *schema, const struct walk *w, enum closing closing)
{
    const char *key;
    json_t *v;
    if (!json_is_object(schema))
        return;
    json_object_foreach(schema, key, v)
    {
        const enum closing inner = closing_of(schema, key, closing);
        if (is_one_of(key, data_keys))
            continue;
        if (json_is_array(v) || is_one_of(key, maps))
            walk_all(v, w, inner);
        else
            walk_schema(v, w, inner);
    }
    move_ref(schema, "$ref", w);
    if (closing == CLOSE)
        close_object(schema);
}

/* ---- what is part of another by its name ---- */

/* A definition that an allOf names, or a $ref with members beside it, is a part as well. The first
 * sight of one opens it: `open` is a set of such references. */
static void find_parts(const json_t *schema, bool is_part, json_t *open)
{
    const char *key;
    json_t *v;
    if (json_is_array(schema))
        for (size_t i = 0; i < json_array_size(schema); i++)
            find_parts(json_array_get(schema, i), is_part, open);
    if (!json_is_object(schema))
        return;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (ref && (is_part || json_object_get(schema, "properties")))
        json_object_set_new(open, ref, json_true());
    json_object_foreach((json_t *)schema, key, v) if (!is_one_of(key, data_keys))
        find_parts(v, strcmp(key, "allOf") == 0, open);
}

/* Says of each such definition what its lack of a word means, so that it is not closed. */
static void open_parts(json_t *parameters)
{
    static const char *const rooms[] = {"$defs", "definitions"};
    json_t *open = json_object();
    find_parts(parameters, false, open);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(parameters, rooms[i]), name, v)
        {
            char ref[MAX_REF];
            const int n = snprintf(ref, sizeof ref, "#/%s/%s", rooms[i], name);
            if (n > 0 && (size_t)n < sizeof ref && json_object_get(open, ref) &&
                json_is_object(v) && !says_elsewhere(v))
                json_object_set_new(v, "additionalProperties", json_true());
        }
    }
    json_decref(open);
}

/* ---- calls ---- */

/* The tool's parameters as a definition of the whole: an object's. */
static json_t *definition_of(const json_t *function, const char *place)
{
    json_t *parameters = json_deep_copy(json_object_get(function, "parameters"));
    if (!json_is_object(parameters)) {
        json_decref(parameters);
        parameters = json_object();
    }
    if (!json_object_get(parameters, "properties") && !says_elsewhere(parameters))
        json_object_set_new(parameters, "properties", json_object()); /* none */
    json_object_set_new(parameters, "type", json_string("object"));
    json_t *id = json_incref(json_object_get(parameters, "$id"));
    const struct walk w = {place, json_string_value(id)};
    json_object_del(parameters, "$id"); /* it would be a document of its own again */
    json_object_del(parameters, "$schema");
    open_parts(parameters);
    walk_schema(parameters, &w, CLOSE);
    json_decref(id);
    return parameters;
}

json_t *tool_schema_of_calls(const json_t *tools, struct str only, bool one_call)
{
    json_t *calls = json_array(), *defs = json_object();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        char name[32], place[48];
        json_t *own = json_object_get(function, "name");
        if (only.len > 0 && !str_eq(params_json_str(own), only))
            continue;
        snprintf(name, sizeof name, "tool%zu", i);
        snprintf(place, sizeof place, "#/$defs/%s", name);
        json_object_set_new(defs, name, definition_of(function, place));
        json_array_append_new(calls, json_pack("{s:s, s:{s:{s:O}, s:{s:s}}, s:[s, s], s:b}", "type",
                                               "object", "properties", "name", "const", own,
                                               "arguments", "$ref", place, "required", "name",
                                               "arguments", "additionalProperties", 0));
    }
    json_t *whole = json_array_size(calls) > 0
                        ? json_pack("{s:s, s:i, s:{s:O}, s:{s:b}, s:O}", "type", "array",
                                    "minItems", 1, "items", "anyOf", calls, "x-guidance",
                                    "whitespace_flexible", 0, "$defs", defs)
                        : NULL;
    if (whole && (one_call || only.len > 0))
        json_object_set_new(whole, "maxItems", json_integer(1));
    json_decref(calls);
    json_decref(defs);
    return whole;
}
