#pragma once
/* What the computed full blocks of one KV group hold, so that a sequence that starts with the same
 * tokens need not compute them again. A block is found by a 128-bit hash chained over (parent's
 * hash, its token ids); the chain starts at a root made of the salt and the LoRA's name. A hit is
 * confirmed by comparing the token ids and the parent. The parent is compared by `content`, a
 * number that is new for every registration, so along a walk from the root a colliding hash cannot
 * give wrong blocks. A window group starts in the middle and compares the parent's hash instead.
 * The cache owns no blocks: the pool decides which live; whoever hands out a block says
 * prefix_cache_forget first. O(1), allocates nothing after new. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

#define PREFIX_MAX_BLOCK_TOKENS 1024u
#define PREFIX_CONTENT_ROOT     1ull       /* parent of a first block */
#define PREFIX_CONTENT_UNKNOWN  0ull       /* parent was not registered: reachable by hash only */
#define PREFIX_CONTENT_ANY      UINT64_MAX /* in find: compare the parent's hash only */

struct block_hash {
    uint64_t lo, hi;
};
struct block_hash prefix_hash_root(uint64_t salt, struct str lora);
struct block_hash prefix_hash_block(struct block_hash parent, const uint32_t *ids, uint32_t n);

/* A full block's identity. ids: block_tokens of them, borrowed. */
struct prefix_key {
    struct block_hash hash, parent_hash;
    uint64_t parent_content;
    const uint32_t *ids;
};

struct prefix_cache;
/* NULL: no memory. block_tokens <= PREFIX_MAX_BLOCK_TOKENS. */
struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens);
void prefix_cache_free(struct prefix_cache *c);
void prefix_cache_reset(struct prefix_cache *c);

/* BLOCK_NONE: not there. */
uint32_t prefix_cache_find(const struct prefix_cache *c, const struct prefix_key *k);
uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block);
/* The block is computed and full. Returns the content: of this block, or of the one that already
 * holds the same (then this one stays unregistered). */
uint64_t prefix_cache_register(struct prefix_cache *c, uint32_t block, const struct prefix_key *k);
bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block);
void prefix_cache_forget(struct prefix_cache *c, uint32_t block); /* not registered: fine */
bool prefix_cache_check(const struct prefix_cache *c, struct error *err);
