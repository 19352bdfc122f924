#pragma once
#include "gateway/answer/answer_parser.h"

/* `tool_parser_raw` reads answers that are the input of one custom tool, by the tool's own
 * grammar. */
extern const struct answer_parser tool_parser_raw;
