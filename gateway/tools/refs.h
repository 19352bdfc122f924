#pragma once
/* Rewrites references within a tool's parameters, which are a JSON schema document of their own.
 * When the document becomes part of a larger document, each reference into it becomes a JSON
 * pointer from the larger document's root. Names that could clash with other documents ($id,
 * $anchor, $dynamicAnchor) are removed. The functions are pure. */
#include <jansson.h>

#include <stdbool.h>

/* Returns true for a key of a schema whose value is plain data without schemas. */
bool schema_key_is_data(const char *key);
/* Returns true for a key of a schema whose value is an object of schemas under any names. */
bool schema_key_is_map(const char *key);

/* Rewrites the references in `parameters`. `place` is the document's new position, such as
 * "#/$defs/tool3". A reference is resolved by the $id and the anchors of its resource. A
 * reference without a target in this document is unchanged. A $dynamicRef becomes a $ref,
 * because no other document extends this document. */
void tool_refs_move(json_t *parameters, const char *place);
