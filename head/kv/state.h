#pragma once
/* The block table's own structs, for the files of blocks.h only.
 *   tables.c  tables: room, growth, release; the steps
 *   prefix.c  what sequences share: hashes, hits, entering, copies
 *   move.c    what goes to another replica's table, or comes from there */
#include "head/kv/blocks.h"

/* Hashes of a request's full blocks of one size, on its arena: computed once, when it arrives, and
 * on as it grows. */
struct prefix_chain {
    struct prefix_chain *next; /* of another size */
    uint32_t block_tokens, n, n_room;
    struct block_hash hashes[]; /* [n + 1] of n_room; [0]: the root */
};

struct blocks_group {
    struct block_pool *pool;
    struct prefix_cache *cache;
    uint32_t block_tokens;
    uint32_t window;      /* 0: none */
    uint32_t max_held;    /* blocks one sequence can hold at once: window and largest chunk */
    uint64_t claimed;     /* this step: for older sequences that wait for the quarantine */
    uint64_t promised;    /* blocks that prompts which are partly computed will need */
    uint32_t *hit_blocks; /* of the last find or advance, by logical index */
};

struct blocks {
    uint32_t n_groups;
    bool caching;
    bool same_size; /* of blocks in all groups: then the end of a prompt can be shared too */
    uint32_t align; /* a hit ends on a block border of every group */
    uint64_t step_sent, step_done;
    struct plan_copy *copies; /* of the plan being made, then of the one before it */
    uint32_t n_copies, n_copied_from, max_copies;
    uint64_t n_evictions, n_all_copies;
    struct blocks_group groups[BLOCKS_MAX_GROUPS];
};

/* Blocks that were free; what they held is forgotten. Several are a prompt's, and entered soon. */
void blocks_alloc(struct blocks *b, struct blocks_group *g, uint32_t *ids, uint32_t n);

/* Blocks that stay free of new sequences, beside so many that run. */
uint64_t blocks_spare_for_others(const struct blocks_group *g, uint32_t n_running);

/* prefix.c: r's hashes for blocks of this size; NULL: it is not hashed. */
struct prefix_chain *blocks_chain_of(const struct request *r, uint32_t block_tokens);
struct prefix_key blocks_key_of(const struct prefix_chain *c, const struct request *r, uint32_t i,
                                uint64_t parent_content);
/* Walks on from block i, whose parent has this content, while blocks are there, to at most n; they
 * are in g->hit_blocks. Returns where it ends. */
uint32_t blocks_walk(struct blocks_group *g, const struct request *r, uint32_t i, uint32_t n,
                     uint64_t parent_content);
/* Into the cache. Returns the content under which the tokens are known from now on. */
uint64_t blocks_enter_block(const struct blocks *b, struct blocks_group *g, uint32_t block,
                            const struct prefix_key *k);

static inline uint32_t blocks_for(uint32_t n_tokens, uint32_t block_tokens)
{
    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

/* Blocks that a sequence of this many positions needs at once, at most. */
static inline uint32_t blocks_at_once(const struct blocks_group *g, uint32_t n_positions)
{
    uint32_t n = blocks_for(n_positions, g->block_tokens);
    return n < g->max_held ? n : g->max_held;
}

/* The first block a run at position start needs. One token more than the window is kept: cheap, and
 * right for both ways of counting a window. */
static inline uint32_t first_needed(const struct blocks_group *g, uint32_t start)
{
    return g->window && start > g->window ? (start - g->window) / g->block_tokens : 0;
}

/* The first block that stays when a run begins at position. Ranks drop only what they know. */
static inline uint32_t first_kept(const struct blocks_group *g, const struct block_table *t,
                                  uint32_t position)
{
    uint32_t first = first_needed(g, position);
    first = first < t->n_told ? first : t->n_told;
    return first > t->first ? first : t->first;
}
