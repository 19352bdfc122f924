#pragma once
/* gpt-oss: messages in channels, <|channel|>final<|message|>…<|end|>. One reader is both parsers:
 * as --reasoning-parser alone it leaves calls in the text, as --tool-call-parser it reads it all.
 */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser reasoning_parser_harmony, tool_parser_harmony;
