#pragma once
/* References inside of a tool's parameters, which are a JSON schema document of their own. Where
 * the document becomes a part of a larger one, each reference that leads into it becomes a JSON
 * pointer from the larger one's root, and the names that others could meet ($id, $anchor,
 * $dynamicAnchor) go. Pure. */
#include <jansson.h>

#include <stdbool.h>

/* A member of a schema whose value is data: nothing in it is a schema. */
bool schema_key_is_data(const char *key);
/* A member of a schema whose value is an object of schemas, whatever these are called. */
bool schema_key_is_map(const char *key);

/* place: where the document will lie, "#/$defs/tool3". A reference is resolved by the $id and the
 * anchors of the resource that it stands in. One that leads nowhere, or to another document, stays
 * as it is. A $dynamicRef is a $ref here: there is one document, and no other extends it. */
void tool_refs_move(json_t *parameters, const char *place);
