#pragma once
/* Parses the messages of gpt-oss in channels, <|channel|>final<|message|>…<|end|>. One reader
 * serves both parsers. As --reasoning-parser alone it leaves calls in the text. As
 * --tool-call-parser it parses everything. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser reasoning_parser_harmony, tool_parser_harmony;
