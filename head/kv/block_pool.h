#pragma once
/* Keeps the blocks of one KV group: their owners, and the free blocks in order of release.
 *
 * When the last owner releases a block while steps are in flight, one of these steps may still
 * write the block. The block is in quarantine until the results of all steps sent while it was
 * owned have arrived. Step numbers only grow, so the quarantined blocks are the last ones in a
 * list in order of release. The quarantine is thus a count per list: a release touches each
 * block once, and no block moves when results arrive.
 *
 * There are two lists. One has the blocks whose content is worth keeping (they are in the prefix
 * cache), the other has the blocks without content. Blocks without content are allocated first,
 * then the least recently used block with content. A free block keeps its content, so it may be
 * acquired again from either list, quarantined or not. Every operation is O(1) and allocates
 * nothing. One thread owns the pool. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BLOCK_NONE           UINT32_MAX
#define BLOCK_POOL_MAX_DEPTH 4u /* most steps in flight */

struct block_pool;
/* Creates a pool of free blocks. Returns NULL when there is not enough memory. */
struct block_pool *block_pool_new(uint32_t n_blocks);
void block_pool_free(struct block_pool *p);
/* Makes all blocks free and empty, in ascending order. `step_done` is the last step that counts
 * as done. */
void block_pool_reset(struct block_pool *p, uint64_t step_done);

/* Returns an empty block, or else the least recently used one, with one owner. Returns
 * BLOCK_NONE when all blocks are owned or in quarantine. *was_kept is true when the block's
 * content was worth keeping. */
uint32_t block_pool_alloc(struct block_pool *p, bool *was_kept);
/* Adds an owner to the block. */
void block_pool_acquire(struct block_pool *p, uint32_t id);
/* Removes an owner from each of the n blocks, the last block first, since an earlier block is
 * the more useful prefix. `step_sent` is the last step that was sent, at most
 * BLOCK_POOL_MAX_DEPTH after the last one done. */
void block_pool_release(struct block_pool *p, const uint32_t *ids, uint32_t n, uint64_t step_sent);
/* Sets whether an owned block's content is worth keeping, which decides the list that release
 * uses. */
void block_pool_keep(struct block_pool *p, uint32_t id, bool keep);
/* Frees from quarantine the blocks whose steps have all returned results. `step_done` is the
 * newest such step. */
void block_pool_on_done(struct block_pool *p, uint64_t step);

/* Prefetches the block's state. Call it some time before block_pool_acquire of the same block. */
void block_pool_prefetch(const struct block_pool *p, uint32_t id);

uint32_t block_pool_size(const struct block_pool *p);
uint32_t block_pool_n_free(const struct block_pool *p); /* blocks that can be allocated now */
uint32_t block_pool_n_quarantined(const struct block_pool *p);
uint32_t block_pool_owners(const struct block_pool *p, uint32_t id);
enum block_use { BLOCK_EMPTY, BLOCK_CACHED, BLOCK_OWNED, BLOCK_SHARED, BLOCK_USE_COUNT };
/* Counts the states of every stride-th block in [begin, end) and adds them to `counts`. Blocks
 * in quarantine count as free. */
void block_pool_count(const struct block_pool *p, uint32_t begin, uint32_t end, uint32_t stride,
                      uint32_t counts[BLOCK_USE_COUNT]);
/* Returns true when the block is free, and false for a block in quarantine. */
bool block_pool_is_free(const struct block_pool *p, uint32_t id);
/* Checks, for tests, that the lists are consistent and each block is in exactly one place. */
bool block_pool_check(const struct block_pool *p, struct error *err);
