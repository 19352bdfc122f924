#pragma once
/* Divides a model among the ranks of a replica. The ranges are adjacent and cover the whole.
 * They are as even as possible: a rank may have one unit more than another, and the last ranks
 * have nothing when there are more ranks than units. Rank 0 always has a part. The functions are
 * pure and may run on any thread. */
#include <stdint.h>

struct cut_range {
    uint32_t first, n;
};

/* Cuts [0, n) in whole units; the last unit may be shorter. n_ranks >= 1. */
struct cut_range cut_units(uint32_t n, uint32_t unit, uint32_t n_ranks, uint32_t rank);

/* `cut_heads` describes the heads of a rank. Query heads are divided. A rank also holds the KV
 * heads that its query heads read, so a KV head may be on several ranks. A rank without query
 * heads still holds one KV head, since every rank keeps positions. n_heads is a multiple of
 * n_kv_heads. */
struct cut_heads {
    struct cut_range q, kv;
    /* number of query heads that use KV head kv.first and precede q.first */
    uint32_t first_in_group;
};
struct cut_heads cut_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks, uint32_t rank);
/* Returns the layers of a stage. All stages get the same number. The remaining layers go, one
 * each, to the stages directly before the last stage, which has the head. n_stages <= n_layers. */
struct cut_range cut_layers(uint32_t n_layers, uint32_t n_stages, uint32_t stage);
/* Returns the largest number of KV heads that a rank holds. */
uint32_t cut_most_kv_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks);
