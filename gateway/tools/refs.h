#pragma once
/* References within a tool's parameters, which are a JSON schema document of their own. When the
 * document becomes part of a larger one, each reference into it becomes a JSON pointer from the
 * larger one's root. Names that could clash with other documents ($id, $anchor, $dynamicAnchor)
 * are removed. Pure. */
#include <jansson.h>

#include <stdbool.h>

/* Returns true for a schema's member with plain data, which contains no schemas. */
bool schema_key_is_data(const char *key);
/* Returns true for a schema's member with an object of schemas under any names. */
bool schema_key_is_map(const char *key);

/* Rewrites the references. `place` is the document's new position, such as "#/$defs/tool3". A
 * reference is resolved by the $id and the anchors of its resource. A reference without a target
 * in this document is unchanged. A $dynamicRef becomes a $ref, since no other document extends
 * this one. */
void tool_refs_move(json_t *parameters, const char *place);
