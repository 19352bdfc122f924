#pragma once
/* The blocks of one KV group: reference counts, the free list in least-recently-used order, and the
 * quarantine. A block whose last owner leaves while steps are in flight may still be written by one
 * of them, so it waits in the quarantine until the results of all steps sent while it was owned are
 * in. A free block keeps its content until it is handed out again (prefix_cache.h), so a block may
 * be acquired back from the free list or the quarantine. Everything is O(1) and allocates nothing.
 * One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BLOCK_NONE UINT32_MAX

struct block_pool;
/* NULL: no memory for that many. */
struct block_pool *block_pool_new(uint32_t n_blocks);
void block_pool_free(struct block_pool *p);
/* All blocks free, in ascending order; step_done is the last step whose result counts as in. */
void block_pool_reset(struct block_pool *p, uint64_t step_done);

/* The free block used longest ago, with one owner; BLOCK_NONE: none is free. */
uint32_t block_pool_alloc(struct block_pool *p);
/* One more owner. */
void block_pool_acquire(struct block_pool *p, uint32_t id);
/* One owner less. step_sent: the last step that was sent. keep: the content is worth keeping, so
 * the block is reused last; without it the block is reused first. */
void block_pool_release(struct block_pool *p, uint32_t id, uint64_t step_sent, bool keep);
/* The results of all steps up to this one are in. */
void block_pool_on_done(struct block_pool *p, uint64_t step);

uint32_t block_pool_size(const struct block_pool *p);
uint32_t block_pool_n_free(const struct block_pool *p);
uint32_t block_pool_n_quarantined(const struct block_pool *p);
uint32_t block_pool_owners(const struct block_pool *p, uint32_t id);
bool block_pool_is_free(const struct block_pool *p, uint32_t id); /* not in quarantine either */
/* For tests: lists consistent, each block in exactly one place. */
bool block_pool_check(const struct block_pool *p, struct error *err);
