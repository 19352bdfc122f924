#pragma once
/* The content of the blocks of one KV group, so that a sequence that starts with the same tokens
 * need not compute them again. A full block, or the first tokens of one: the end of a prompt. A
 * block is found by a 128-bit hash chained over (parent's hash, its token ids); the chain starts at
 * a root made of the salt, the LoRA's name and its id. A hit is confirmed by comparing the token
 * ids and the parent. The parent is compared by `content`, a number that is new for every
 * registration, so along a walk from the root a colliding hash cannot give wrong blocks. A window
 * group starts in the middle and compares the parent's hash instead. The cache owns no blocks: the
 * pool decides which live; whoever hands out a block says prefix_cache_forget first.
 *
 * Memory latency is what it costs: a pool's entries do not fit a CPU's cache. Buckets are half
 * cache lines of eight (tag, block) pairs, so that a lookup touches one line and then only the
 * entry it wants. Where a block is registered, bucket and tag, stands in an array of one word per
 * block: forgetting is one store, and slots that point to forgotten content, or to newer content
 * elsewhere, are found stale there, and used again, when their bucket is full. Should all eight be
 * alive, one loses its registration: it is a cache. O(1), allocates nothing after new. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

#define PREFIX_MAX_BLOCK_TOKENS 1024u
#define PREFIX_MAX_BLOCKS       (1u << 24)
#define PREFIX_CONTENT_ROOT     1ull       /* parent of a first block */
#define PREFIX_CONTENT_UNKNOWN  0ull       /* parent was not registered: reachable by hash only */
#define PREFIX_CONTENT_ANY      UINT64_MAX /* in find: compare the parent's hash only */

struct block_hash {
    uint64_t lo, hi;
};
struct block_hash prefix_hash_root(struct block_hash salt, struct str lora, uint64_t lora_id);
struct block_hash prefix_hash_block(struct block_hash parent, const uint32_t *ids, uint32_t n);

/* The content of a block: n tokens, 1 .. block_tokens. ids is borrowed. */
struct prefix_key {
    struct block_hash hash, parent_hash;
    uint64_t parent_content;
    const uint32_t *ids;
    uint32_t n;
};

struct prefix_cache;
/* NULL: no memory. block_tokens <= PREFIX_MAX_BLOCK_TOKENS, n_blocks <= PREFIX_MAX_BLOCKS. */
struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens);
void prefix_cache_free(struct prefix_cache *c);
void prefix_cache_reset(struct prefix_cache *c);

/* BLOCK_NONE: not there. */
uint32_t prefix_cache_find(const struct prefix_cache *c, const struct prefix_key *k);
/* 0: not registered. */
uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block);
bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block);

struct prefix_registered {
    uint64_t content;   /* of this block, or of the one that holds the same already: */
    bool is_new;        /* then this one is not registered */
    uint32_t displaced; /* a block that lost its registration, or BLOCK_NONE */
};
/* The block holds these tokens, or will when the plan that is being made has run; what it was
 * registered for is forgotten. */
struct prefix_registered prefix_cache_register(struct prefix_cache *c, uint32_t block,
                                               const struct prefix_key *k);
void prefix_cache_forget(struct prefix_cache *c, uint32_t block); /* not registered: fine */

/* For walks over what is known beforehand: bring into the CPU's cache what find or register of this
 * hash will touch first (the bucket), then what find will (the entry; when the bucket is there). */
void prefix_cache_prefetch_bucket(const struct prefix_cache *c, struct block_hash hash);
void prefix_cache_prefetch_hit(const struct prefix_cache *c, struct block_hash hash);
/* This block will be forgotten, and, if so, registered. */
void prefix_cache_prefetch_entry(const struct prefix_cache *c, uint32_t block, bool registered);
bool prefix_cache_check(const struct prefix_cache *c, struct error *err);
