#pragma once
/* What the gateway's Hello says of its tokens (docs/protocol.md, "Vocabularies"). Once, at the
 * start: some 10 ms for 262,144 tokens. */
#include "proto/vocabulary.h"
#include "text/text.h"

void own_vocabulary(const struct text_tokenizer *t, struct vocabulary *out);
