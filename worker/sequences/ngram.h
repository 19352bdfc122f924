#pragma once
/* Draft tokens for speculative decoding without a second model: what followed the last time that
 * the sequence had these words ("prompt lookup", Saxena 2023; vLLM's method ngram). Of the earlier
 * places where the longest suffix of n_max .. n_min ids occurs, the latest one is copied from;
 * where that runs into the end of the ids it goes on with the draft tokens, so a loop is drafted as
 * a loop.
 *
 * An index of hash chains, as LZ77 compressors keep one: an id costs one step to enter, a lookup at
 * most DRAFT_NGRAM_MAX_LINKS, however long the sequence is; about 12 bytes an id. Draft tokens
 * follow from ids and configuration alone, so the ranks of a group draft the same. Zeroed is empty;
 * one thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define DRAFT_NGRAM_MAX_LINKS  64u
#define DRAFT_NGRAM_MAX_LOOKUP 64u

struct draft_ngram_config {
    uint32_t n_max, n_min; /* ids of a suffix: 1 <= n_min <= n_max <= DRAFT_NGRAM_MAX_LOOKUP */
};

struct draft_ngram {
    uint32_t *heads; /* [1 << bits] the latest place that an n_min-gram of this hash ends at + 1 */
    uint32_t *links; /* [n_indexed] by place: the one before it in its chain + 1; 0: none */
    uint32_t bits, heads_cap, links_cap, n_indexed;
};

void draft_ngram_reset(struct draft_ngram *d); /* another sequence; keeps the memory */
void draft_ngram_fini(struct draft_ngram *d);
/* Writes at most n_max draft tokens behind ids[n_ids], where there is room for them; *n: how many.
 * The ids are those of the last call, and more. STATUS_NO_MEMORY only. */
MUST_USE enum status draft_ngram_propose(struct draft_ngram *d, const struct draft_ngram_config *c,
                                         uint32_t *ids, uint32_t n_ids, uint32_t n_max, uint32_t *n,
                                         struct error *err);
