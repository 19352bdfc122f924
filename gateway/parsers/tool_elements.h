#pragma once
/* Calls whose arguments are elements that may be nested, each tag behind a marker (MiniMax M3):
 *
 *   ]<]minimax[>[<tool_call> ]<]minimax[>[<invoke name="f"> ]<]minimax[>[<key>x]<]minimax[>[</key>
 * …
 *
 * What an element is, the request's tools say. Arguments are given when their call has ended, since
 * an element may be repeated, and is a list then; what is held is no more than the answer. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser tool_parser_minimax_m3;
