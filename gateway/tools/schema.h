#pragma once
/* The JSON schema of an answer that has to call tools: a list of {"name": …, "arguments": …}.
 *
 * Each tool's `parameters` is a document of its own, and stays one: it lies whole at
 * #/$defs/tool0, tool1, …, and each $ref in it that begins with # leads to the same place as in the
 * request. So two tools may have definitions of one name, and a $ref to a tool's own root is that
 * root.
 *
 * Arguments are an object, whatever the schema says, and an object whose `properties` are listed
 * has no others unless the schema allows them by name (additionalProperties, patternProperties,
 * unevaluatedProperties) or says more of it elsewhere (allOf and the like): as vLLM's strict mode
 * has it. Pure. */
#include <jansson.h>

#include "common/base/str.h"

/* only: the one tool that may be called, or empty: any. one_call: the list has one call. A new
 * reference; NULL: there is no such tool. */
json_t *tool_schema_of_calls(const json_t *tools, struct str only, bool one_call);
