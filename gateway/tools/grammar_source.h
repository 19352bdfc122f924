#pragma once
/* What a request says of its answer's shape, as a kind and a source for text_grammar_compile: from
 * response_format, structured_outputs and guided_*. A request has one at most. Pure. */
#include "gateway/answer/answer_parser.h"
#include "gateway/params/params.h"

/* name: the field, for errors. Sources are kept on p->arena. */
bool grammar_from_response_format(struct params *p, const char *name, const json_t *v,
                                  struct api_error *e);
bool grammar_from_structured_outputs(struct params *p, const char *name, const json_t *v,
                                     struct api_error *e);
/* what: "json", "regex", "choice", "grammar", "json_object" or "structural_tag". */
bool grammar_from_value(struct params *p, const char *name, const char *what, const json_t *v,
                        struct api_error *e);
/* The same where a schema stands beside the type: {"type": …, "schema": …}. */
bool grammar_from_flat_format(struct params *p, const char *name, const json_t *v,
                              struct api_error *e);
/* tool_choice required, or a function: a list of calls, {"name": …, "arguments": {…}} each, of
 * p->tools; one without parallel_tool_calls, or of a function. */
bool grammar_from_tools(struct params *p, struct api_error *e);
/* The request's grammar, if it has one, begins behind the reasoning. */
bool grammar_after_reasoning(struct params *p, const struct reasoning_marks *m,
                             struct api_error *e);
