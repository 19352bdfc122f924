#pragma once
/* Finds the types of a tool's parameters, and converts a model's text to a JSON value of such a
 * type. Parsers use these functions for calls with plain text between tags (tool_tagged.h). The
 * functions are pure. The schema comes from a client, so TOOL_TYPES_MAX_LOOKS bounds the number
 * of visited parts. */
#include <jansson.h>

#include "common/base/str.h"

struct answer;

enum {
    TOOL_NULL = 1,
    TOOL_INTEGER = 2,
    TOOL_NUMBER = 4,
    TOOL_BOOLEAN = 8,
    TOOL_OBJECT = 16,
    TOOL_ARRAY = 32,
    TOOL_STRING = 64,
};
enum { TOOL_TYPES_MAX_LOOKS = 1000 }; /* most parts of a schema visited for one parameter */

/* Returns the types that the tool's whole schema allows for the parameter `key`. Reads type (a
 * word or a list), enum, const, anyOf, oneOf, allOf, and $ref into `parameters` (a pointer, an
 * anchor, an $id). The result is the union of the types of all branches. When neither
 * `properties` nor a matching pattern certainly has the key, the other patternProperties and
 * additionalProperties count. Returns 0 when no type is stated. `parameters` is the tool's
 * schema, or NULL. */
uint32_t tool_types_of(const json_t *parameters, struct str key);

/* `tool_types_of_schema` returns the types of a part of a tool's schema `root`. The next two
 * functions return the schema of a key and of a list's items in such a part, as new references;
 * NULL = not stated. */
uint32_t tool_types_of_schema(const json_t *root, const json_t *schema);
json_t *tool_property_of(const json_t *root, const json_t *schema, struct str key);
json_t *tool_items_of(const json_t *root, const json_t *schema);

/* Returns false when a value that begins with `text` can only be a string. */
bool tool_value_may_be_other(uint32_t types, struct str text);
/* Writes `text` as the value of an argument. The first type that fits is used, in the order
 * null, integer, number, boolean, object, array, string, as in vLLM's coerce_to_schema_type.
 * When no type is stated, any valid JSON or literal is written as such, and other text as a
 * string. */
void tool_value_give(struct answer *a, uint32_t i_call, uint32_t types, struct str text);
