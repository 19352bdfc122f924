#pragma once
/* Defines the structs of the block table, only for the files that implement blocks.h.
 *   tables.c  tables: capacity, growth, release; the steps
 *   prefix.c  shared blocks: hashes, hits, cache entries, copies
 *   move.c    blocks that move to or from another replica's table */
#include "head/kv/blocks.h"

/* Holds the hashes of a request's full blocks of one size, on its arena. They are computed when
 * the request arrives and extended as it grows. */
struct prefix_chain {
    struct prefix_chain *next; /* chain for another block size */
    uint32_t block_tokens, n, n_room;
    /* array of n + 1 hashes, with capacity for n_room; [0] is the root */
    struct block_hash hashes[];
};

struct blocks_group {
    struct block_pool *pool;
    struct prefix_cache *cache;
    uint32_t block_tokens;
    uint32_t window; /* length of the window, in tokens; 0 = no window */
    /* `max_held` is the most blocks that one sequence can hold at once: window and largest
     * chunk. */
    uint32_t max_held;
    /* `claimed` counts the blocks claimed in this step by older sequences that wait for the
     * quarantine. */
    uint64_t claimed;
    uint64_t promised;    /* blocks that partly computed prompts will still need */
    uint32_t *hit_blocks; /* result of the last find or advance, by logical index */
};

struct blocks {
    uint32_t n_groups;
    bool caching;
    bool same_size; /* all groups have one block size, so the end of a prompt can be shared too */
    uint32_t align; /* a hit ends on a block border of every group, tokens */
    uint64_t step_sent, step_done;
    struct plan_copy *copies; /* copies of the current plan, then of the previous plan */
    uint32_t n_copies, n_copied_from, max_copies;
    uint64_t n_evictions, n_all_copies;
    struct blocks_group groups[BLOCKS_MAX_GROUPS];
};

/* Allocates n blocks and removes their old content from the cache. When n is more than one, the
 * blocks belong to a prompt and will be entered soon. */
void blocks_alloc(struct blocks *b, struct blocks_group *g, uint32_t *ids, uint32_t n);

/* Returns the reserve of blocks that new sequences must leave free when n_running sequences run. */
uint64_t blocks_spare_for_others(const struct blocks_group *g, uint32_t n_running);

/* Returns r's hashes for this block size (prefix.c), or NULL when `r` is not hashed. */
struct prefix_chain *blocks_chain_of(const struct request *r, uint32_t block_tokens);
struct prefix_key blocks_key_of(const struct prefix_chain *c, const struct request *r, uint32_t i,
                                uint64_t parent_content);
/* Walks from block i, whose parent has this content, to at most block n, while blocks are
 * cached. Writes the blocks to g->hit_blocks. Returns the block where the walk ends. */
uint32_t blocks_walk(struct blocks_group *g, const struct request *r, uint32_t i, uint32_t n,
                     uint64_t parent_content);
/* Enters a block into the cache. Returns the content number under which the tokens are now
 * known. */
uint64_t blocks_enter_block(const struct blocks *b, struct blocks_group *g, uint32_t block,
                            const struct prefix_key *k);

static inline uint32_t blocks_for(uint32_t n_tokens, uint32_t block_tokens)
{
    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

/* Returns the most blocks that a sequence of n_positions needs at once. */
static inline uint32_t blocks_at_once(const struct blocks_group *g, uint32_t n_positions)
{
    uint32_t n = blocks_for(n_positions, g->block_tokens);
    return n < g->max_held ? n : g->max_held;
}

/* Returns the first block that a run at position `start` needs. It keeps one token more than the
 * window, which is right for both ways to count a window. */
static inline uint32_t first_needed(const struct blocks_group *g, uint32_t start)
{
    return g->window && start > g->window ? (start - g->window) / g->block_tokens : 0;
}

/* Returns the first block that stays when a run begins at `position`. Only blocks that the ranks
 * have received can be dropped. */
static inline uint32_t first_kept(const struct blocks_group *g, const struct block_table *t,
                                  uint32_t position)
{
    uint32_t first = first_needed(g, position);
    first = first < t->n_told ? first : t->n_told;
    return first > t->first ? first : t->first;
}
