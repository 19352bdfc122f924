#pragma once
/* Declares readers for the fields of tools and of an answer's format that all dialects share. */
#include "gateway/fields/field.h"

/* Sets the tools of `p` to the list `v`. `read` is called for each element with its position,
 * and adds the tool (tools/set.h) or refuses it. An empty list gives no tools. */
typedef bool (*field_read_tool)(struct params *p, json_t *tool, size_t i,
                                const struct field_context *c);
bool field_tools(struct params *p, const json_t *v, const struct field_context *c,
                 field_read_tool read);
/* Forces a call of the tool with this name (a string), in a namespace or without one (NULL).
 * Returns false when there is no such tool. */
bool field_force_tool(struct params *p, const json_t *name, const json_t *space,
                      const struct field_context *c);
/* Reads OpenAI's forms of tool_choice:
 * - a word;
 * - {"type": "function" or "custom"} with a name, directly or (chat) in an object named like the
 * type;
 * - {"type": "allowed_tools"} with mode and tools, directly or in such an object. */
bool field_tool_choice(struct params *p, const json_t *v, const struct field_context *c);
/* Checks a response_format. In the flat form the schema is not within json_schema. */
bool field_known_format(const struct field_context *c, const char *name, const json_t *v,
                        bool is_flat);
