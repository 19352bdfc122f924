#pragma once
/* The parsers of reasoning, by the name that --reasoning-parser takes. */
#include "gateway/answer/answer_parser.h"

/* NULL: there is none. */
const struct answer_parser *reasoning_parser_find(const char *name);
/* "a, b, c": for the message when there is none. */
void reasoning_parser_names(struct strbuf *out);
