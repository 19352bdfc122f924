#pragma once
/* Declares the reasoning parsers, by the names of --reasoning-parser. */
#include "gateway/answer/answer_parser.h"

/* Returns the parser with this name, or NULL when there is none. */
const struct answer_parser *reasoning_parser_find(const char *name);
/* Appends "a, b, c", for the error text about an unknown name. */
void reasoning_parser_names(struct strbuf *out);
