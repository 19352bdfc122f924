#pragma once
/* Parses the messages of Muse to a recipient, to=self<|message|>…<|eom|>. Before Muse's tool
 * parser, the reasoning parser keeps the framing of the remaining text, which the tool parser
 * needs. Before any other parser it removes the framing. A tool parser alone parses everything. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser reasoning_parser_muse, tool_parser_muse;
extern const struct answer_parser reasoning_parser_muse_spark, tool_parser_muse_spark;
extern const struct answer_parser reasoning_parser_muse_glimmer, tool_parser_muse_glimmer;
