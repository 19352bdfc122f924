#pragma once
/* Makes draft tokens for speculative decoding without a second model: the tokens that followed
 * the same ids earlier in the sequence ("prompt lookup", Saxena 2023; vLLM's method ngram). The
 * longest suffix of n_max .. n_min ids that occurs earlier is used, and the ids after its latest
 * occurrence are copied. When the copy reaches the end of the ids, it continues with the draft
 * tokens, so that a loop is repeated.
 *
 * The index has hash chains, as in LZ77 compressors. Adding an id takes one step. A look-up
 * takes at most DRAFT_NGRAM_MAX_LINKS steps for any length of the sequence. An id takes about 12
 * bytes. Draft tokens depend only on ids and configuration, so all ranks of a replica make the
 * same draft tokens. A zeroed struct is an empty index. One thread uses it. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define DRAFT_NGRAM_MAX_LINKS  64u
#define DRAFT_NGRAM_MAX_LOOKUP 64u

struct draft_ngram_config {
    /* number of ids in a suffix: 1 <= n_min <= n_max <= DRAFT_NGRAM_MAX_LOOKUP */
    uint32_t n_max, n_min;
};

struct draft_ngram {
    uint32_t *heads; /* [1 << bits] by hash; 1 + last place where an n_min-gram ends; 0 = none */
    uint32_t *links; /* [n_indexed] by place; 1 + previous place of its chain; 0 = none */
    uint32_t bits, heads_cap, links_cap, n_indexed;
};

/* Empties the index for another sequence, and keeps its memory. */
void draft_ngram_reset(struct draft_ngram *d);
void draft_ngram_fini(struct draft_ngram *d);
/* Writes at most n_max draft tokens after ids[n_ids], where the caller has memory for them, and
 * sets *n to their number. The ids must begin with those of the previous call. The only error is
 * STATUS_NO_MEMORY. */
MUST_USE enum status draft_ngram_propose(struct draft_ngram *d, const struct draft_ngram_config *c,
                                         uint32_t *ids, uint32_t n_ids, uint32_t n_max, uint32_t *n,
                                         struct error *err);
