#pragma once
/* Turns the requested form of an answer into a kind and a source for text_grammar_compile. The
 * form comes from response_format, structured_outputs or guided_*. A request has at most one
 * form. The functions are pure. */
#include "gateway/answer/answer_parser.h"
#include "gateway/params/params.h"

/* Reads a response_format. `name` is the field's name, for errors. Sources are kept on
 * `p->arena`. */
bool grammar_from_response_format(struct params *p, const char *name, const json_t *v,
                                  struct api_error *e);
bool grammar_from_structured_outputs(struct params *p, const char *name, const json_t *v,
                                     struct api_error *e);
/* Reads one form. `what` is "json", "regex", "choice", "grammar", "json_object" or
 * "structural_tag". */
bool grammar_from_value(struct params *p, const char *name, const char *what, const json_t *v,
                        struct api_error *e);
/* Reads a format with the schema next to the type: {"type": …, "schema": …}. */
bool grammar_from_flat_format(struct params *p, const char *name, const json_t *v,
                              struct api_error *e);
/* Makes the answer a list of calls of `p->tools`, for tool_choice required or a named function.
 * Each call is {"name": …, "arguments": {…}}. The list has one call when a function is named, or
 * without parallel_tool_calls. */
bool grammar_from_tools(struct params *p, struct api_error *e);
/* Makes the request's grammar, if there is one, begin after the reasoning. */
bool grammar_after_reasoning(struct params *p, const struct reasoning_marks *m,
                             struct api_error *e);
