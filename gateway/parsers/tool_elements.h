#pragma once
/* Parses calls with arguments in nested elements, each tag after a marker (MiniMax M3):
 *   ]<]minimax[>[<tool_call> ]<]minimax[>[<invoke name="f"> ]<]minimax[>[<key>x]<]minimax[>[</key>
 * The request's tools define the type of an element. Arguments are emitted at the end of their
 * call, because an element may be repeated and is a list then. The held text is never longer
 * than the answer. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser tool_parser_minimax_m3;
