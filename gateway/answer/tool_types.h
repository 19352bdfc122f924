#pragma once
/* What a tool's parameters may hold, and text that a model wrote for one of them as a JSON value of
 * such a type. For parsers of calls whose arguments are plain text between tags (tool_tagged.h).
 * Pure; a tool's schema is a client's: what is looked at is bounded (TOOL_TYPES_MAX_LOOKS). */
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
enum { TOOL_TYPES_MAX_LOOKS = 1000 }; /* parts of a schema, for one parameter */

/* The types that the parameter `key` of a tool may have, by its whole schema: type (a word or a
 * list), enum, const, anyOf, oneOf, allOf, $ref into `parameters` (a pointer, an anchor, an $id);
 * of branches that each have such a key, the types of all. Where `properties` has none and no
 * pattern is surely the key's, all other patternProperties and additionalProperties. 0: nothing
 * says a type. parameters: the tool's schema, or NULL. */
uint32_t tool_types_of(const json_t *parameters, struct str key);

/* The same for a part of a tool's schema, root, and the schemas of a key and of a list's items in
 * such a part, new references; NULL: nothing names it. */
uint32_t tool_types_of_schema(const json_t *root, const json_t *schema);
json_t *tool_property_of(const json_t *root, const json_t *schema, struct str key);
json_t *tool_items_of(const json_t *root, const json_t *schema);

/* False: text, which is a beginning, can be a string alone. */
bool tool_value_may_be_other(uint32_t types, struct str text);
/* Gives text as the value of an argument: of the types the first one that it can be, in the order
 * null, integer, number, boolean, object, array, string (vLLM's coerce_to_schema_type); of none of
 * them whatever JSON or literal it is, and else a string. */
void tool_value_give(struct answer *a, uint32_t i_call, uint32_t types, struct str text);
