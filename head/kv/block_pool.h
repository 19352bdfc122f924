#pragma once
/* The blocks of one KV group: owners, and the free ones in the order in which they were let go.
 *
 * A block whose last owner leaves while steps are in flight may still be written by one of them: it
 * is in quarantine until the results of all steps sent while it was owned are in. Steps only grow,
 * so in a list in order of release the quarantined blocks are the last ones: quarantine is a count
 * per list, a block is touched once when it is let go, and nothing moves when results come.
 *
 * Two lists: blocks whose content is worth keeping (they are in the prefix cache) are handed out
 * least recently used first, after all those that hold nothing. A free block keeps its content, so
 * it may be acquired back from either list, quarantined or not. Everything is O(1) and allocates
 * nothing. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BLOCK_NONE           UINT32_MAX
#define BLOCK_POOL_MAX_DEPTH 4u /* steps that may be in flight */

struct block_pool;
/* NULL: no memory for that many. */
struct block_pool *block_pool_new(uint32_t n_blocks);
void block_pool_free(struct block_pool *p);
/* All blocks free and empty, in ascending order; step_done: the last step whose result counts as
 * in. */
void block_pool_reset(struct block_pool *p, uint64_t step_done);

/* An empty block, or the one used longest ago, with one owner; BLOCK_NONE: all are owned or in
 * quarantine. *was_kept: its content was worth keeping. */
uint32_t block_pool_alloc(struct block_pool *p, bool *was_kept);
/* One more owner. */
void block_pool_acquire(struct block_pool *p, uint32_t id);
/* One owner less for each of the n blocks, the last one first: of two that are let go together the
 * earlier is the more useful prefix. step_sent: the last step that was sent, at most
 * BLOCK_POOL_MAX_DEPTH after the last that is done. */
void block_pool_release(struct block_pool *p, const uint32_t *ids, uint32_t n, uint64_t step_sent);
/* Whether the content is worth keeping, while it is owned: says where release puts it. */
void block_pool_keep(struct block_pool *p, uint32_t id, bool keep);
/* The results of all steps up to this one are in. */
void block_pool_on_done(struct block_pool *p, uint64_t step);

void block_pool_prefetch(const struct block_pool *p, uint32_t id); /* acquire will follow */

uint32_t block_pool_size(const struct block_pool *p);
uint32_t block_pool_n_free(const struct block_pool *p); /* that can be handed out */
uint32_t block_pool_n_quarantined(const struct block_pool *p);
uint32_t block_pool_owners(const struct block_pool *p, uint32_t id);
enum block_use { BLOCK_EMPTY, BLOCK_CACHED, BLOCK_OWNED, BLOCK_SHARED, BLOCK_USE_COUNT };
/* Adds what every stride-th of the blocks [begin, end) is; one in quarantine counts as free. */
void block_pool_count(const struct block_pool *p, uint32_t begin, uint32_t end, uint32_t stride,
                      uint32_t counts[BLOCK_USE_COUNT]);
bool block_pool_is_free(const struct block_pool *p, uint32_t id); /* not in quarantine either */
/* For tests: lists consistent, each block in exactly one place. */
bool block_pool_check(const struct block_pool *p, struct error *err);
