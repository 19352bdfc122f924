#pragma once
/* How many tokens of a choice its reasoning has: those that the reasoning's text lies in. The text
 * comes in pieces, each with its place in all that the model wrote. Plain data; loop thread only.
 */
#include "gateway/generation/generation.h"

enum { REASONING_SPANS = 8 }; /* a later one joins the last */

struct reasoning_count {
    struct {
        uint64_t begin, end; /* bytes of the choice's text */
    } spans[REASONING_SPANS];
    uint32_t n_spans;
    uint32_t n_ids, i_span; /* looked at; the first span that does not end before the next one */
    uint64_t at;            /* where the next one's text begins */
    uint32_t n_tokens;      /* of those looked at */
};

/* len bytes of reasoning at place `at`; pieces come in order. */
void reasoning_count_add(struct reasoning_count *c, uint64_t at, uint64_t len);
/* Looks at more of g's first n_ids; n_text: bytes of the text that went through the parser, behind
 * which nothing is known yet. Returns how many are reasoning so far. */
uint32_t reasoning_count_tokens(struct reasoning_count *c, const struct generation_rules *r,
                                const uint32_t *ids, uint32_t n_ids, uint64_t n_text);
