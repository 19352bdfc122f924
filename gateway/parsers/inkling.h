#pragma once
/* Parses the blocks of Inkling, <|message_model|> name <|content_thinking|> … <|end_message|>,
 * in any order. */
#include "gateway/answer/answer_parser.h"

extern const struct answer_parser reasoning_parser_inkling, tool_parser_inkling;
