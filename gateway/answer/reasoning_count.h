#pragma once
/* Counts the tokens of a choice that overlap its reasoning text. The text arrives in pieces.
 * Each piece has its position in the whole text of the model. `reasoning_count` is plain data.
 * Only the loop thread calls these functions. */
#include "gateway/generation/generation.h"

enum { REASONING_SPANS = 8 }; /* most separate spans; later spans are merged into the last span */

struct reasoning_count {
    struct {
        uint64_t begin, end; /* positions in the choice's text, in bytes */
    } spans[REASONING_SPANS];
    uint32_t n_spans;
    /* `n_ids`: ids counted so far; `i_span`: first span that ends after `at` */
    uint32_t n_ids, i_span;
    uint64_t at;       /* byte position of the next id's text */
    uint32_t n_tokens; /* reasoning tokens among the counted ids */
};

/* Adds a piece of reasoning: `len` bytes at position `at`. Pieces must be added in order. */
void reasoning_count_add(struct reasoning_count *c, uint64_t at, uint64_t len);
/* Counts up to the first `n_ids` ids. `n_text` is the number of bytes that the parser has
 * consumed. Later text is not classified yet. Returns the number of reasoning tokens so far. */
uint32_t reasoning_count_tokens(struct reasoning_count *c, const struct generation_rules *r,
                                const uint32_t *ids, uint32_t n_ids, uint64_t n_text);
