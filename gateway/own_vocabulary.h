#pragma once
/* The sketch of its tokens that the gateway says in Hello (docs/protocol.md, "Vocabularies"). It is
 * made once, at the start, in some 10 ms for 262,144 tokens. */
#include "proto/vocabulary.h"
#include "text/text.h"

void own_vocabulary(const struct text_tokenizer *t, struct vocabulary *out);
