#pragma once
/* How the ranks of a replica share a model: ranges that lie side by side and are the
 * whole. As even as they go: a rank may have one more than another, and the last ones nothing, when
 * there are more ranks than parts. Rank 0 always has something. Pure. */
#include <stdint.h>

struct cut_range {
    uint32_t first, n;
};

/* [0, n) in whole units; the last one may be shorter. n_ranks >= 1. */
struct cut_range cut_units(uint32_t n, uint32_t unit, uint32_t n_ranks, uint32_t rank);

/* Query heads are shared out; a rank holds the KV heads that its query heads read, so that one may
 * be on several ranks. Who has no query head holds one KV head all the same: every rank keeps
 * positions. n_heads is a multiple of n_kv_heads. */
struct cut_heads {
    struct cut_range q, kv;
    uint32_t first_in_group; /* query heads of KV head kv.first before q.first */
};
struct cut_heads cut_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks, uint32_t rank);
/* Layers of a stage: as many for each; what is left over goes to the stages before the last one,
 * which has the head, one each. n_stages <= n_layers. */
struct cut_range cut_layers(uint32_t n_layers, uint32_t n_stages, uint32_t stage);
/* KV heads of the rank that holds most of them. */
uint32_t cut_most_kv_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks);
