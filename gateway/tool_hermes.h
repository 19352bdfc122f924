#pragma once
/* <tool_call>{"name": …, "arguments": {…}}</tool_call>: Hermes, Qwen and many after them. */
#include "gateway/answer_parser.h"

extern const struct answer_parser tool_parser_hermes;
