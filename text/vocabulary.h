#pragma once
/* Computes the sketch of a tokenizer's ordinary tokens that gateways and workers exchange
 * (docs/develop/protocol.md, "Vocabularies"). Gateways and workers must both use this function,
 * so that equal vocabularies have equal sketches. */
#include "proto/vocabulary.h"
#include "text/text.h"

/* Computes the sketch of `t`, which takes a few milliseconds. Any thread may call it. */
static inline void text_vocabulary(const struct text_tokenizer *t, struct vocabulary *out)
{
    struct vocabulary_sketcher k;
    const uint32_t n = text_vocab_size(t);
    vocabulary_begin(&k);
    for (uint32_t id = 0; id < n; id++) {
        size_t len = 0;
        const uint8_t *bytes = text_token_is_special(t, id) ? NULL : text_token_bytes(t, id, &len);
        if (bytes)
            vocabulary_add(&k, id, bytes, len);
    }
    vocabulary_end(&k, n, out);
}
