#pragma once
/* The parsers of tool calls, by the name that --tool-call-parser takes, and the one that
 * reads answers which are a list of calls. */
#include "gateway/answer/answer_parser.h"

/* Reads answers that are a list of calls by their grammar (grammar_from_tools). */
extern const struct answer_parser tool_parser_list;
/* By name; NULL: there is none. */
const struct answer_parser *tool_parser_find(const char *name);
/* "a, b, c": for the message when there is none. */
void tool_parser_names(struct strbuf *out);
