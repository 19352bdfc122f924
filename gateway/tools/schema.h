#pragma once
/* Makes the JSON schema of an answer that must call tools: a list of {"name": …, "arguments":
 * …}. Each tool's `parameters` stays a complete document, at #/$defs/tool0, tool1, … A $ref in
 * this document that begins with # points to the same place as in the request. Two tools may
 * therefore have definitions of the same name, and a $ref to the root points to the tool's own
 * root.
 * Arguments are always an object. An object with listed `properties` may have no other members,
 * as in vLLM's strict mode. There are exceptions: the schema allows more (additionalProperties,
 * patternProperties, unevaluatedProperties), or states more elsewhere (allOf and similar keys).
 * The functions are pure. */
#include <jansson.h>

#include "common/base/str.h"

/* Returns the schema as a new reference, or NULL when there is no tool `only`. `only` is the
 * single tool that may be called; empty = any tool. With `one_call` the list has one call. */
json_t *tool_schema_of_calls(const json_t *tools, struct str only, bool one_call);
