#pragma once
/* Finds blocks of one KV group by content, so that a sequence that starts with the same tokens
 * need not compute them again. An entry is a full block, or the first tokens of a block: the end
 * of a prompt. A block is found by a 128-bit hash chained over (parent's hash, its token ids).
 * The chain starts at a root made of the salt, the LoRA's name and its id.
 *
 * A hit is confirmed by comparing the token ids and the parent. The parent is compared by
 * `content`, a number that is new for every registration. So a colliding hash cannot give wrong
 * blocks along a walk from the root. A window group starts in the middle and compares the
 * parent's hash instead. The cache owns no blocks: the pool decides which blocks keep their
 * content. A caller that allocates a block calls prefix_cache_forget first.
 *
 * The main cost is memory latency, since the entries do not fit a CPU's cache. A bucket is half
 * a cache line with eight (tag, block) pairs, so a lookup touches one line and then only the
 * entry that it needs. An array with one word per block has the bucket and tag of each
 * registered block. Forgetting a block is one store. Slots that point to forgotten or moved
 * content are detected as stale, and are reused when their bucket is full. When all eight slots
 * are live, one loses its registration. Every call is O(1), and nothing is allocated after
 * prefix_cache_new. One thread owns the cache. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

#define PREFIX_MAX_BLOCK_TOKENS 1024u
#define PREFIX_MAX_BLOCKS       (1u << 24)
#define PREFIX_CONTENT_ROOT     1ull /* parent of a first block */
/* PREFIX_CONTENT_UNKNOWN means that the parent was not registered. The block is found by hash
 * only. */
#define PREFIX_CONTENT_UNKNOWN 0ull
/* With PREFIX_CONTENT_ANY, prefix_cache_find compares only the parent's hash. */
#define PREFIX_CONTENT_ANY UINT64_MAX

struct block_hash {
    uint64_t lo, hi;
};
struct block_hash prefix_hash_root(struct block_hash salt, struct str lora, uint64_t lora_id);
struct block_hash prefix_hash_block(struct block_hash parent, const uint32_t *ids, uint32_t n);

/* Describes the content of a block: n tokens, 1 to block_tokens. `ids` is borrowed. */
struct prefix_key {
    struct block_hash hash, parent_hash;
    uint64_t parent_content;
    const uint32_t *ids;
    uint32_t n;
};

struct prefix_cache;
/* Creates an empty cache. Returns NULL when memory is missing. block_tokens ≤
 * PREFIX_MAX_BLOCK_TOKENS, n_blocks ≤ PREFIX_MAX_BLOCKS. */
struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens);
void prefix_cache_free(struct prefix_cache *c);
void prefix_cache_reset(struct prefix_cache *c);

/* Returns the block with this content, or BLOCK_NONE when there is none. */
uint32_t prefix_cache_find(const struct prefix_cache *c, const struct prefix_key *k);
/* Returns the block's content number, or 0 when the block is not registered. */
uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block);
bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block);

struct prefix_registered {
    /* content number of this block, or of the block that already has these tokens */
    uint64_t content;
    bool is_new;        /* false: another block has these tokens, so this one is not registered */
    uint32_t displaced; /* block that lost its registration, or BLOCK_NONE */
};
/* Registers a block that contains these tokens now or after the plan in progress. Its former
 * registration is forgotten. */
struct prefix_registered prefix_cache_register(struct prefix_cache *c, uint32_t block,
                                               const struct prefix_key *k);
/* Forgets a block, which need not be registered. */
void prefix_cache_forget(struct prefix_cache *c, uint32_t block);

/* These two functions prefetch for blocks that are looked up soon. The first one prefetches the
 * bucket, which find and register read first. The second one prefetches the entry of a hit; call
 * it when the bucket has arrived. */
void prefix_cache_prefetch_bucket(const struct prefix_cache *c, struct block_hash hash);
void prefix_cache_prefetch_hit(const struct prefix_cache *c, struct block_hash hash);
/* Prefetches for prefix_cache_forget of this block and, if `registered`, for registering it. */
void prefix_cache_prefetch_entry(const struct prefix_cache *c, uint32_t block, bool registered);
bool prefix_cache_check(const struct prefix_cache *c, struct error *err);
