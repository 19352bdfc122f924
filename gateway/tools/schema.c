/* Makes the JSON schema of an answer that must call tools from the tools' own schemas.
 * grammar_source.c and blame.c call `tool_schema_of_calls`. Each tool's parameters are copied,
 * moved to #/$defs/toolN with their references, and then closed: an object with listed
 * properties gets additionalProperties: false.
 * The schemas come from a client, so MAX_DEPTH and MAX_LOOKS bound the search. When it is not
 * certain which members an object may have, the object stays open. The request's own JSON is
 * never changed. The functions are pure, and usable on any thread. */
#include "gateway/tools/schema.h"

#include <stdio.h>
#include <string.h>

#include "gateway/params/params.h"
#include "gateway/tools/refs.h"

enum { MAX_REF = 1024, MAX_LOOKS = 2000, MAX_DEPTH = 32 };

/* ---- members stated by a schema ---- */

struct closer {
    const char *place;      /* place of the tool, such as "#/$defs/tool3" */
    const json_t *document; /* parameters of the tool, an object schema */
    /* number of schemas visited for one object; bounded, because schemas come from a client */
    uint32_t n_looks;
};

/* Returns the target of a reference that `tool_refs_move` has rewritten, or NULL when there is
 * none. */
static const json_t *target_of(const struct closer *c, const char *ref)
{
    static const char *const rooms[] = {"/$defs/", "/definitions/"};
    const size_t n = strlen(c->place);
    if (strncmp(ref, c->place, n) != 0)
        return NULL;
    if (!ref[n])
        return c->document;
    for (size_t i = 0; i < 2; i++) {
        const size_t n_room = strlen(rooms[i]);
        const char *name = ref + n + n_room;
        if (strncmp(ref + n, rooms[i], n_room) == 0 && !strpbrk(name, "/~%"))
            return json_object_get(json_object_get(c->document, i ? "definitions" : "$defs"), name);
    }
    return NULL;
}

static bool collect(struct closer *c, const json_t *schema, json_t *names, uint32_t depth);

static bool collect_list(struct closer *c, const json_t *list, json_t *names, uint32_t depth)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!collect(c, json_array_get(list, i), names, depth + 1))
            return false;
    return true;
}

/* Returns true when `dependencies` (draft 7) has only lists of names, which allow no further
 * members. */
static bool lists_names_alone(const json_t *dependencies)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)dependencies, key, v) if (!json_is_array(v)) return false;
    return true;
}

/* Adds to `names` each member that a schema and its parts list or require. Returns false when
 * the schema allows further members. */
static bool collect(struct closer *c, const json_t *schema, json_t *names, uint32_t depth)
{
    static const char *const open[] = {"patternProperties",
                                       "unevaluatedProperties",
                                       "$dynamicRef",
                                       "$recursiveRef",
                                       "if",
                                       "dependentSchemas",
                                       NULL};
    static const char *const parts[] = {"allOf", "anyOf", "oneOf", NULL};
    const json_t *required = json_object_get(schema, "required");
    const json_t *more = json_object_get(schema, "additionalProperties");
    const char *key, *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *v;
    if (!json_is_object(schema))
        return json_is_true(schema) || json_is_false(schema);
    if (depth > MAX_DEPTH || c->n_looks++ > MAX_LOOKS)
        return false;
    for (const char *const *k = open; *k; k++)
        if (json_object_get(schema, *k))
            return false;
    /* false means a complete list of members, stated by the schema or set here */
    if (more && !json_is_false(more))
        return false;
    if (!lists_names_alone(json_object_get(schema, "dependencies")))
        return false;
    json_object_foreach(json_object_get(schema, "properties"), key, v)
        json_object_set_new(names, key, json_true());
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (json_is_string(name))
            json_object_set_new(names, json_string_value(name), json_true());
    }
    for (const char *const *k = parts; *k; k++)
        if (!collect_list(c, json_object_get(schema, *k), names, depth))
            return false;
    return !ref || collect(c, target_of(c, ref), names, depth + 1);
}

/* ---- closing objects ---- */

/* Returns true when the schema itself lists members. */
static bool lists_members(const json_t *schema)
{
    return json_is_object(json_object_get(schema, "properties")) ||
           json_array_size(json_object_get(schema, "required")) > 0 ||
           json_array_size(json_object_get(schema, "allOf")) > 0;
}

/* Closes an object that lists its members. Members that its parts list are added to its own
 * properties, because additionalProperties applies only to these. */
static void close_object(struct closer *c, json_t *schema)
{
    json_t *names = json_object(), *v, *own = json_object_get(schema, "properties");
    const char *name;
    c->n_looks = 0;
    if (!json_object_get(schema, "additionalProperties") && lists_members(schema) &&
        collect(c, schema, names, 0) && (json_is_object(own) || json_object_size(names) > 0)) {
        if (!json_is_object(own))
            json_object_set_new(schema, "properties", json_object());
        own = json_object_get(schema, "properties");
        json_object_foreach(names, name, v) if (!json_object_get(own, name))
            json_object_set_new(own, name, json_object());
        json_object_set_new(schema, "additionalProperties", json_false());
    }
    json_decref(names);
}

/* `closing` is the role of a schema: it describes a whole object, a part of an object, or only a
 * condition. */
enum closing { CLOSE_WHOLE, CLOSE_PART, CLOSE_NONE };

static enum closing closing_of(const json_t *schema, const char *key, enum closing outer)
{
    static const char *const asks[] = {"not", "if", "contains", "propertyNames", NULL};
    static const char *const parts[] = {"allOf",        "then", "else", "dependentSchemas",
                                        "dependencies", NULL};
    const bool is_choice = strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0;
    if (outer == CLOSE_NONE || str_is_one_of(str_from(key), asks))
        return CLOSE_NONE;
    if (str_is_one_of(str_from(key), parts) ||
        (is_choice && (outer == CLOSE_PART || lists_members(schema))))
        return CLOSE_PART;
    return CLOSE_WHOLE;
}

static void close_all(struct closer *c, json_t *schema, enum closing closing);

static void close_each(struct closer *c, json_t *v, enum closing closing)
{
    const char *key;
    json_t *one;
    for (size_t i = 0; i < json_array_size(v); i++)
        close_all(c, json_array_get(v, i), closing);
    json_object_foreach(v, key, one) close_all(c, one, closing);
}

static void close_all(struct closer *c, json_t *schema, enum closing closing)
{
    const char *key;
    json_t *v;
    if (!json_is_object(schema))
        return;
    /* the object is closed before its parts, because this reads the members of the parts */
    if (closing == CLOSE_WHOLE)
        close_object(c, schema);
    json_object_foreach(schema, key, v)
    {
        const enum closing inner = closing_of(schema, key, closing);
        if (schema_key_is_data(key))
            continue;
        if (json_is_array(v) || schema_key_is_map(key))
            close_each(c, v, inner);
        else
            close_all(c, v, inner);
    }
}

/* ---- definitions used as parts ---- */

/* Collects references to definitions that are only parts of an object. Such a reference is in an
 * allOf, in a choice next to members, or in a $ref next to members. `open` is the set of these
 * references. */
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
    if (ref && (is_part || lists_members(schema)))
        json_object_set_new(open, ref, json_true());
    json_object_foreach((json_t *)schema, key, v)
    {
        const bool is_choice = strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0;
        if (!schema_key_is_data(key))
            find_parts(v, strcmp(key, "allOf") == 0 || (is_choice && lists_members(schema)), open);
    }
}

/* Closes the document's objects. Definitions used as parts are opened again at the end, after
 * the objects around them have read their members. */
static void close_document(struct closer *c, json_t *parameters)
{
    static const char *const rooms[] = {"$defs", "definitions"};
    json_t *parts = json_object();
    find_parts(parameters, false, parts);
    close_all(c, parameters, CLOSE_WHOLE);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(parameters, rooms[i]), name, v)
        {
            char ref[MAX_REF];
            const int n = snprintf(ref, sizeof ref, "%s/%s/%s", c->place, rooms[i], name);
            if (n > 0 && (size_t)n < sizeof ref && json_object_get(parts, ref) &&
                json_is_false(json_object_get(v, "additionalProperties")))
                json_object_del(v, "additionalProperties");
        }
    }
    json_decref(parts);
}

/* ---- calls ---- */

/* Returns true when the schema states anything about members. A schema that does not is the
 * schema of a tool without arguments. */
static bool speaks_of_members(const json_t *schema)
{
    static const char *const keys[] = {"properties",
                                       "required",
                                       "additionalProperties",
                                       "patternProperties",
                                       "unevaluatedProperties",
                                       "allOf",
                                       "anyOf",
                                       "oneOf",
                                       "$ref",
                                       "$dynamicRef",
                                       "$recursiveRef",
                                       "if",
                                       "dependentSchemas",
                                       "dependencies",
                                       "minProperties",
                                       NULL};
    for (const char *const *key = keys; *key; key++)
        if (json_object_get(schema, *key))
            return true;
    return false;
}

/* Returns the tool's parameters as a definition for the whole schema. The definition is always
 * an object. */
static json_t *definition_of(const json_t *function, const char *place)
{
    json_t *parameters = json_deep_copy(json_object_get(function, "parameters"));
    if (!json_is_object(parameters)) {
        json_decref(parameters);
        parameters = json_object();
    }
    if (json_is_null(json_object_get(parameters, "properties")))
        json_object_del(parameters, "properties");
    if (!speaks_of_members(parameters))
        /* the tool has no arguments */
        json_object_set_new(parameters, "properties", json_object());
    json_object_set_new(parameters, "type", json_string("object"));
    json_object_del(parameters, "$schema");
    tool_refs_move(parameters, place);
    struct closer c = {.place = place, .document = parameters};
    close_document(&c, parameters);
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
