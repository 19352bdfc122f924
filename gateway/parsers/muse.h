#pragma once
/* Muse: messages to somebody, to=self<|message|>…<|eom|>. The reasoning's parser keeps the framing
 * of what it leaves to a tool parser of its own kind, which reads it again, and leaves it out
 * before any other; a tool parser alone reads all of it. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser reasoning_parser_muse, tool_parser_muse;
extern const struct answer_parser reasoning_parser_muse_spark, tool_parser_muse_spark;
extern const struct answer_parser reasoning_parser_muse_glimmer, tool_parser_muse_glimmer;
