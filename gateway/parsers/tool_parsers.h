#pragma once
/* Declares the tool parsers, by the names of --tool-call-parser, and the parser of answers that
 * are a list of calls. */
#include "gateway/answer/answer_parser.h"

/* `tool_parser_list` reads answers that a grammar forces to be a list of calls
 * (grammar_from_tools). */
extern const struct answer_parser tool_parser_list;
/* Returns the parser with this name, or NULL when there is none. */
const struct answer_parser *tool_parser_find(const char *name);
/* Appends "a, b, c", for the error text about an unknown name. */
void tool_parser_names(struct strbuf *out);
