#pragma once
/* Keeps the KV block table of one replica. It maps positions of sequences to blocks in every KV
 * group, and decides which blocks are shared. A group is full attention, a window or a latent,
 * and has its own block size and count. The table uses the pool (owners and free blocks:
 * block_pool.h) and the prefix cache (content of blocks: prefix_cache.h). The table stores
 * tokens and positions, but not the schedule.
 *
 * A sequence has one table per KV group. The calls in its life are: blocks_find (cached part of
 * its prompt) → blocks_fit_admit → blocks_take → per run: blocks_advance (blocks that others
 * have planned meanwhile), blocks_fit, blocks_extend, blocks_enter → blocks_release.
 *
 * A prompt's blocks are entered into the prefix cache when the run that fills them is planned.
 * Ranks execute plans and their runs in order, so any run planned later may read these blocks.
 * The last, partly filled block of a prompt is entered when it is computed (blocks_enter_tail).
 * A sequence that shares it gets a copy. Without caching, only sequences of one request share
 * blocks.
 *
 * Every call is O(1) per block. Nothing is allocated after blocks_new except hashes on a
 * request's own arena: when the request arrives (blocks_hash) and before it runs
 * (blocks_make_room). One thread owns the table. */
#include "head/kv/block_part.h"
#include "head/kv/block_pool.h"
#include "head/kv/prefix_cache.h"
#include "head/request/request.h"

#define BLOCKS_MAX_GROUPS 8u

struct blocks_config {
    uint32_t n_groups;
    const struct kv_group *groups;
    uint32_t max_model_len, max_chunk; /* most positions of a sequence, and of one run */
    uint32_t max_seqs;                 /* most sequences that have tables at once */
    bool caching;                      /* different requests may share blocks */
};

struct block_table {
    /* `ids` lists blocks by logical index and has capacity for the whole sequence. The sequence
     * owns the blocks in [first, n). */
    uint32_t *ids;
    uint32_t first, n; /* blocks before `first` have left the window */
    uint32_t n_told;   /* the ranks have received the blocks in [first_told, n_told) */
    uint32_t first_told;
    uint32_t n_entered;  /* full blocks that were offered to the cache */
    uint32_t n_wanted;   /* blocks that the known ids need at once; 0 = the promise was cancelled */
    uint32_t n_promised; /* part of n_wanted that is not allocated yet */

    uint64_t content; /* content number in the cache of block n_entered - 1, or of the root */
    struct prefix_chain *chain; /* the request's hashes for this block size */
    uint64_t digest; /* sum of plan_digest_block over the blocks that the ranks have received */
};

/* Describes a cached prefix with tokens [0, n_tokens). In KV group g it has blocks [first[g],
 * n[g]). The first n_tail tokens of one more block are to be copied. */
struct blocks_hit {
    uint32_t n_tokens, n_tail;
    uint32_t first[BLOCKS_MAX_GROUPS], n[BLOCKS_MAX_GROUPS], tail[BLOCKS_MAX_GROUPS];
};

struct blocks_stats {
    uint32_t n_blocks, n_used;
    uint64_t n_evictions, n_copies;
};

/* These are limits for the KV groups and model length of a worker, checked before the worker is
 * admitted. Every scheduler supports values within them, so scheduler_new never refuses a
 * replica that has formed. */
#define BLOCKS_MIN_MODEL_LEN 2u
#define BLOCKS_MAX_MODEL_LEN (1u << 24)

struct blocks;
MUST_USE enum status blocks_check_group(const struct kv_group *k, uint32_t i, struct error *err);
MUST_USE enum status blocks_new(const struct blocks_config *c, struct blocks **out,
                                struct error *err);
void blocks_free(struct blocks *b);
/* Frees all blocks and clears the caches. Earlier tables become invalid. Steps count from 1
 * again. */
void blocks_reset(struct blocks *b);

/* ---- steps ---- */

/* Begins a plan. The plan counts as sent when scheduler_step returns it to its caller. */
void blocks_begin_step(struct blocks *b);
void blocks_on_sent(struct blocks *b, uint64_t step);
void blocks_on_done(struct blocks *b, uint64_t step);
/* Returns the copies that the plan in progress must contain. */
const struct plan_copy *blocks_copies(const struct blocks *b, uint32_t *n);

/* ---- sequences ---- */

/* Returns how many uint32_t the tables of a sequence with n_positions positions need. */
size_t blocks_ids_needed(const struct blocks *b, uint32_t n_positions);
void blocks_init_tables(const struct blocks *b, struct block_table *tables, uint32_t *ids,
                        uint32_t n_positions);
/* Returns true when a sequence of this length can run here at all, when it is alone. */
bool blocks_fit_alone(const struct blocks *b, uint32_t n_positions);
/* Hashes r's full blocks on r's arena. A request has one salt at a time, which may change only
 * while `r` has no tables. Returns false when memory is missing. */
bool blocks_hash(const struct blocks *b, struct request *r);
/* Reserves memory for all ids that `r` may have and for their hashes. Until then the memory
 * holds only the ids of its Submit. Call the function before `r` gets tables. Returns false when
 * memory is missing. */
bool blocks_make_room(struct request *r);

/* Returns true when the request may share blocks. Returns false for requests with
 * prompt_logprobs or a mean of hidden states, since these need every position computed. */
bool blocks_may_share(const struct request *r);
/* Finds the cached prefix of r's ids. It leaves at least the last id to run. `r` must be hashed.
 * The blocks of the hit stay in `b` until the next find or advance. */
void blocks_find(struct blocks *b, const struct request *r, struct blocks_hit *out);
/* Estimates the tokens that blocks_find would find, from O(log n) blocks: if a block is cached,
 * those before it are assumed to be cached too. `r` must be hashed. */
uint32_t blocks_probe(struct blocks *b, const struct request *r);
/* Returns the tokens in full blocks that can be computed once for both requests, without the
 * last token of `r`. Both requests must be hashed. */
uint32_t blocks_common(const struct blocks *b, const struct request *q, const struct request *r);
/* Returns true when a sequence of n_ids fits with this hit. Blocks promised to other sequences
 * and a reserve for n_running sequences do not count as free. With `soon`, blocks that steps in
 * flight still use count as free. */
bool blocks_fit_admit(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, bool soon);
/* Counts the blocks that become free when some sequences leave: blocks that only they own, and
 * blocks promised to them. */
struct blocks_gain {
    uint64_t n[BLOCKS_MAX_GROUPS];
};
void blocks_count_gain(const struct blocks *b, const struct block_table *tables,
                       struct blocks_gain *gain);
/* Like blocks_fit_admit with `soon`, plus the blocks of `gain`. */
bool blocks_fit_after(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, const struct blocks_gain *gain);
/* Adds the hit's blocks to empty tables after blocks_fit_admit has accepted it. Promises the
 * blocks that the rest of n_ids needs. Returns the number of positions that need not be run. */
uint32_t blocks_take(struct blocks *b, struct block_table *tables, const struct request *r,
                     const struct blocks_hit *hit);
/* Adds blocks that other sequences have entered into the cache meanwhile, leaving at least one
 * of n_ids to run. `position` must be a block border of every group, with all blocks before it
 * entered. Returns the new position. */
uint32_t blocks_advance(struct blocks *b, struct block_table *tables, const struct request *r,
                        uint32_t position);

enum blocks_fit {
    BLOCKS_FIT,
    /* blocks in quarantine suffice; they are claimed for this sequence until the next step */
    BLOCKS_FIT_SOON,
    BLOCKS_FIT_NOT
};
/* Returns whether there are enough blocks to run [position, end). */
enum blocks_fit blocks_fit(struct blocks *b, const struct block_table *tables, uint32_t position,
                           uint32_t end);
/* Drops blocks that left the window at `position` and allocates blocks up to `end`. Writes to
 * `out` the changes that the ranks have not received yet, at most one entry per group. Returns
 * the number of entries. */
uint32_t blocks_extend(struct blocks *b, struct block_table *tables, uint32_t slot,
                       uint32_t position, uint32_t end, struct plan_blocks *out);
/* Returns the number of positions that have blocks in every group. */
uint32_t blocks_covered(const struct blocks *b, const struct block_table *tables);
/* Enters the full blocks of [0, n_known) into the cache. The ids at these positions are known
 * and planned. Returns the next n_known at which the function has a block to enter. */
uint32_t blocks_enter(struct blocks *b, struct block_table *tables, const struct request *r,
                      uint32_t n_known);
/* blocks_prefetch prefetches the tables, and blocks_prefetch_enter the data that blocks_enter
 * reads. Callers that enter several sequences in a row use these functions. */
void blocks_prefetch(const struct blocks *b, const struct block_table *tables);
void blocks_prefetch_enter(const struct blocks *b, const struct block_table *tables,
                           const struct request *r);
/* Makes the last, partly filled block of a prompt available for copying. Call it when the whole
 * prompt is computed. */
void blocks_enter_tail(struct blocks *b, struct block_table *tables, const struct request *r);
/* Cancels the promise of blocks to this sequence. Call it when all known ids are planned. */
void blocks_settle(struct blocks *b, struct block_table *tables);
void blocks_release(struct blocks *b, struct block_table *tables);
/* Returns the sum of plan_digest_block over the blocks that the ranks have received. */
uint64_t blocks_digest(const struct blocks *b, const struct block_table *tables);

/* ---- between the tables of two replicas (move.c) ---- */

/* Returns the length of the longest prefix of at most n_tokens that can be a hit. */
uint32_t blocks_align(const struct blocks *b, uint32_t n_tokens);
uint32_t blocks_n_parts(const struct blocks *b, uint32_t n_tokens);
/* Adds an owner to each block of the first n_tokens of a sequence. n_tokens must be aligned, and
 * the steps up to there must be done. Returns false when some of the blocks have left a window. */
bool blocks_hold(struct blocks *b, const struct block_table *tables, uint32_t n_tokens,
                 struct blocks_part *parts);
/* Takes blocks for r's first n_tokens (aligned), from the cache or from the free ones. `r` must
 * be hashed. Returns false when this would leave less than the reserve for n_running sequences. */
bool blocks_import(struct blocks *b, const struct request *r, uint32_t n_tokens, uint32_t n_running,
                   struct blocks_part *parts);
/* Enters imported blocks into the cache, now filled with r's first tokens. They stay owned. */
void blocks_enter_parts(struct blocks *b, const struct request *r, const struct blocks_part *parts,
                        uint32_t n);
/* Removes the owner that blocks_hold or blocks_import added. */
void blocks_let_go(struct blocks *b, const struct blocks_part *parts, uint32_t n);

void blocks_get_stats(const struct blocks *b, struct blocks_stats *out);
uint32_t blocks_tokens(const struct blocks *b, uint32_t i_group); /* tokens per block */
const struct block_pool *blocks_pool(const struct blocks *b, uint32_t i_group);
/* Returns, for tests, the blocks promised to partly computed prompts. */
uint64_t blocks_promised(const struct blocks *b, uint32_t i_group);
/* Checks, for tests, that pools and caches are consistent. */
bool blocks_check(const struct blocks *b, struct error *err);
