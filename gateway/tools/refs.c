#include "gateway/tools/refs.h"

#include <string.h>

#include "common/base/str.h"

bool schema_key_is_data(const char *key)
{
    static const char *const keys[] = {"const",   "enum",     "default", "examples",
                                       "example", "required", NULL};
    return str_is_one_of(str_from(key), keys);
}

bool schema_key_is_map(const char *key)
{
    static const char *const keys[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies",
                                       NULL};
    return str_is_one_of(str_from(key), keys);
}

struct walk {
    const char *place;
    json_t *ids; /* JSON pointers of resources in the document, by $id */
    /* JSON pointers of anchors, by the pointer of the resource, '#' and the anchor's name */
    json_t *anchors;
    struct strbuf at; /* JSON pointer of the current schema */
    bool moves; /* true in the second pass: all names are known and references are rewritten */
};

static void append_part(struct strbuf *b, const char *key)
{
    strbuf_append_c(b, "/");
    for (; *key; key++)
        if (*key == '~')
            strbuf_append_c(b, "~0");
        else if (*key == '/')
            strbuf_append_c(b, "~1");
        else if (*key == '%')
            strbuf_append_c(b, "%25");
        else
            strbuf_append(b, key, 1);
}

/* Returns a new string: `a` followed by `b`. */
static json_t *joined(const char *a, struct str b)
{
    struct strbuf s;
    strbuf_init(&s, 0);
    strbuf_append_c(&s, a);
    strbuf_append_str(&s, b);
    const struct str all = strbuf_str(&s);
    json_t *out = json_stringn(all.ptr, all.len);
    strbuf_fini(&s);
    return out;
}

static void note_anchor(struct walk *w, const json_t *schema, const char *key, const char *resource)
{
    const char *name = json_string_value(json_object_get(schema, key));
    if (!name)
        return;
    json_t *start = joined(resource, STR("#")),
           *whole = joined(json_string_value(start), str_from(name));
    json_object_set_new(w->anchors, json_string_value(whole), joined("", strbuf_str(&w->at)));
    json_decref(start);
    json_decref(whole);
}

/* Returns the pointer to the target of `ref`, seen from `resource`, as a new string. Returns
 * NULL when the target is not in this document. */
static json_t *resolve(const struct walk *w, const char *ref, const char *resource)
{
    const char *hash = strchr(ref, '#'), *fragment = hash ? hash + 1 : "";
    const size_t n_base = hash ? (size_t)(hash - ref) : strlen(ref);
    if (n_base > 0)
        resource = json_string_value(json_object_getn(w->ids, ref, n_base));
    if (!resource)
        return NULL;
    if (!*fragment || *fragment == '/')
        return joined(resource, str_from(fragment));
    json_t *start = joined(resource, STR("#")),
           *whole = joined(json_string_value(start), str_from(fragment));
    json_t *found = json_incref(json_object_get(w->anchors, json_string_value(whole)));
    json_decref(start);
    json_decref(whole);
    return found;
}

static void move_ref(struct walk *w, json_t *schema, const char *key, const char *resource)
{
    const char *ref = json_string_value(json_object_get(schema, key));
    json_t *target = ref ? resolve(w, ref, resource) : NULL;
    if (!target)
        return;
    if (strcmp(key, "$ref") == 0 || !json_object_get(schema, "$ref")) {
        json_object_set_new(schema, "$ref", joined(w->place, str_from(json_string_value(target))));
        if (strcmp(key, "$ref") != 0)
            json_object_del(schema, key);
    }
    json_decref(target);
}

static void look(struct walk *w, json_t *schema, const char *resource)
{
    static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef", NULL};
    static const char *const names[] = {"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
                                        NULL};
    if (!w->moves) {
        note_anchor(w, schema, "$anchor", resource);
        note_anchor(w, schema, "$dynamicAnchor", resource);
        return;
    }
    for (const char *const *key = refs; *key; key++)
        move_ref(w, schema, *key, resource);
    for (const char *const *key = names; *key; key++)
        json_object_del(schema, *key);
}

static void walk_schema(struct walk *w, json_t *schema, const char *resource);

static void walk_at(struct walk *w, const char *key, json_t *v, const char *resource)
{
    const size_t before = w->at.len;
    append_part(&w->at, key);
    walk_schema(w, v, resource);
    w->at.len = before;
}

static void walk_list(struct walk *w, const char *key, json_t *list, const char *resource)
{
    const size_t before = w->at.len;
    append_part(&w->at, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[24];
        snprintf(place, sizeof place, "%zu", i);
        walk_at(w, place, json_array_get(list, i), resource);
    }
    w->at.len = before;
}

static void walk_map(struct walk *w, const char *key, json_t *map, const char *resource)
{
    const size_t before = w->at.len;
    const char *name;
    json_t *v;
    append_part(&w->at, key);
    json_object_foreach(map, name, v) walk_at(w, name, v, resource);
    w->at.len = before;
}

/* Returns the pointer of a schema with its own $id as a new string. Returns NULL when the schema
 * has no $id and belongs to the resource around it. */
static json_t *own_resource(struct walk *w, const json_t *schema)
{
    const char *id = json_string_value(json_object_get(schema, "$id"));
    if (!id || *id == '#')
        return NULL;
    json_t *pointer = joined("", strbuf_str(&w->at));
    if (!w->moves)
        json_object_setn_new(w->ids, id, strcspn(id, "#"), json_incref(pointer));
    return pointer;
}

static void walk_schema(struct walk *w, json_t *schema, const char *resource)
{
    const char *key;
    json_t *v;
    if (!json_is_object(schema))
        return;
    json_t *own = own_resource(w, schema);
    if (own)
        resource = json_string_value(own);
    json_object_foreach(schema, key, v)
    {
        if (schema_key_is_data(key))
            continue;
        if (json_is_array(v))
            walk_list(w, key, v, resource);
        else if (schema_key_is_map(key))
            walk_map(w, key, v, resource);
        else
            walk_at(w, key, v, resource);
    }
    look(w, schema, resource);
    json_decref(own);
}

void tool_refs_move(json_t *parameters, const char *place)
{
    struct walk w = {.place = place, .ids = json_object(), .anchors = json_object()};
    strbuf_init(&w.at, 0);
    walk_schema(&w, parameters, "");
    w.moves = true;
    walk_schema(&w, parameters, "");
    strbuf_fini(&w.at);
    json_decref(w.ids);
    json_decref(w.anchors);
}
