#pragma once
/* Readers that the fields of tools and of an answer's shape share, whatever the dialect. */
#include "gateway/fields/field.h"

/* tools of p is the list v, whose members `read`, given their place, adds (tools/set.h) or refuses;
 * none when it is empty. */
typedef bool (*field_read_tool)(struct params *p, json_t *tool, size_t i,
                                const struct field_context *c);
bool field_tools(struct params *p, const json_t *v, const struct field_context *c,
                 field_read_tool read);
/* An answer is a call of the tool of this name, a string, of a namespace or of none (NULL). False:
 * there is none. */
bool field_force_tool(struct params *p, const json_t *name, const json_t *space,
                      const struct field_context *c);
/* tool_choice of p, of OpenAI's forms: a word, {"type": "function" or "custom"} with a name, in it
 * or (chat) in an object of the type's name, {"type": "allowed_tools"} with mode and tools,
 * likewise. */
bool field_tool_choice(struct params *p, const json_t *v, const struct field_context *c);
/* The same of a response_format, or of its flat form, where a schema is not in json_schema. */
bool field_known_format(const struct field_context *c, const char *name, const json_t *v,
                        bool is_flat);
