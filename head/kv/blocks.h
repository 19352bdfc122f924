#pragma once
/* The KV block table of one replica: which block holds which positions of which sequence, in
 * every KV group (full attention, a window, a latent; each with its own block size and count), and
 * what can be shared. Below it are the pool (owners, free blocks: block_pool.h) and the prefix
 * cache (what a block holds: prefix_cache.h). It knows tokens and positions, not who is scheduled
 * when.
 *
 * A sequence has one table per KV group. Its life: blocks_find (what is cached of its prompt) →
 * blocks_fit_admit → blocks_take → per run: blocks_advance (what others have planned meanwhile),
 * blocks_fit, blocks_extend, blocks_enter → blocks_release.
 *
 * A prompt's blocks are entered into the prefix cache when the run that fills them is planned:
 * ranks execute plans, and the runs of a plan, in order, so any run planned later may read them.
 * The last, partly filled block of a prompt is entered when it is computed (blocks_enter_tail), and
 * copied by who shares it. Without caching, sequences of one request share and nobody else.
 *
 * O(1) per block; allocates nothing after blocks_new but the hashes of a request on its own arena:
 * when it comes (blocks_hash) and when it is to run (blocks_make_room). One thread. */
#include "head/kv/block_part.h"
#include "head/kv/block_pool.h"
#include "head/kv/prefix_cache.h"
#include "head/request/request.h"

#define BLOCKS_MAX_GROUPS 8u

struct blocks_config {
    uint32_t n_groups;
    const struct kv_group *groups;
    uint32_t max_model_len, max_chunk; /* positions of a sequence, and of one run at most */
    uint32_t max_seqs;                 /* sequences that have tables at once */
    bool caching;                      /* between requests */
};

struct block_table {
    uint32_t *ids;     /* by logical index, room for the whole sequence; [first, n) held */
    uint32_t first, n; /* before first: fell out of the window */
    uint32_t n_told;   /* the ranks have been told of [first_told, n_told) */
    uint32_t first_told;
    uint32_t n_entered;  /* full blocks that were offered to the cache */
    uint32_t n_wanted;   /* blocks that the known ids will need at once; 0: nobody counts */
    uint32_t n_promised; /* of these, still to come */

    uint64_t content;           /* of block n_entered - 1 in the cache, or the root's */
    struct prefix_chain *chain; /* the request's hashes for blocks of this size */
    uint64_t digest;            /* sum of plan_digest_block over what the ranks know */
};

/* A prefix that is there: tokens [0, n_tokens); in KV group g blocks [first[g], n[g]), and the
 * first n_tail tokens of one block more, to be copied. */
struct blocks_hit {
    uint32_t n_tokens, n_tail;
    uint32_t first[BLOCKS_MAX_GROUPS], n[BLOCKS_MAX_GROUPS], tail[BLOCKS_MAX_GROUPS];
};

struct blocks_stats {
    uint32_t n_blocks, n_used;
    uint64_t n_evictions, n_copies;
};

/* Whether a worker's KV group and length are what any scheduler can work with: asked before the
 * worker is admitted, so that no group forms that scheduler_new would refuse. */
#define BLOCKS_MIN_MODEL_LEN 2u
#define BLOCKS_MAX_MODEL_LEN (1u << 24)

struct blocks;
MUST_USE enum status blocks_check_group(const struct kv_group *k, uint32_t i, struct error *err);
MUST_USE enum status blocks_new(const struct blocks_config *c, struct blocks **out,
                                struct error *err);
void blocks_free(struct blocks *b);
/* All free, nothing cached; tables of before are void. Steps count from 1 again. */
void blocks_reset(struct blocks *b);

/* ---- time ---- */

/* A plan is being made; it is sent when this returns to the caller of scheduler_step. */
void blocks_begin_step(struct blocks *b);
void blocks_on_sent(struct blocks *b, uint64_t step);
void blocks_on_done(struct blocks *b, uint64_t step);
/* Copies that the plan being made has to carry. */
const struct plan_copy *blocks_copies(const struct blocks *b, uint32_t *n);

/* ---- sequences ---- */

/* Room for the ids of all tables of a sequence of so many positions, uint32_t. */
size_t blocks_ids_needed(const struct blocks *b, uint32_t n_positions);
void blocks_init_tables(const struct blocks *b, struct block_table *tables, uint32_t *ids,
                        uint32_t n_positions);
/* Can a sequence of so many positions run here at all, alone? */
bool blocks_fit_alone(const struct blocks *b, uint32_t n_positions);
/* The hashes of r's full blocks, on r's arena, once for each salt that it has, one after the other:
 * that changes only while r has no tables. False: no memory. */
bool blocks_hash(const struct blocks *b, struct request *r);
/* Before r gets tables: memory for all ids that it may have, and for their hashes, which have it
 * for those that came with it until then. False: no memory. */
bool blocks_make_room(struct request *r);

/* Log-probabilities of the prompt, and the mean of its hidden states, need every position computed.
 */
bool blocks_may_share(const struct request *r);
/* Finds what is cached of r's ids; at least the last of them is left to be run. r is hashed. The
 * blocks themselves stay in b until the next find or advance. */
void blocks_find(struct blocks *b, const struct request *r, struct blocks_hit *out);
/* About as many tokens as blocks_find would find, by looking at O(log n) blocks: where one is
 * cached, those before it are taken to be. r is hashed. */
uint32_t blocks_probe(struct blocks *b, const struct request *r);
/* Tokens in full blocks that can be computed once for both, but the last of r. Both are hashed. */
uint32_t blocks_common(const struct blocks *b, const struct request *q, const struct request *r);
/* Is there room for a sequence of n_ids with this hit, besides what was promised to others and some
 * for the growth of n_running sequences? soon: counts blocks that steps in flight still hold. */
bool blocks_fit_admit(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, bool soon);
/* The blocks that could be given away, were some sequences gone: their own blocks, and what is
 * promised them.
 */
struct blocks_gain {
    uint64_t n[BLOCKS_MAX_GROUPS];
};
void blocks_count_gain(const struct blocks *b, const struct block_table *tables,
                       struct blocks_gain *gain);
/* blocks_fit_admit, soon, with that gain. */
bool blocks_fit_after(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, const struct blocks_gain *gain);
/* Takes the hit, which blocks_fit_admit has accepted, into empty tables; what the other of the
 * n_ids need is promised. Returns the positions that need not be run. */
uint32_t blocks_take(struct blocks *b, struct block_table *tables, const struct request *r,
                     const struct blocks_hit *hit);
/* At a border of all blocks, with everything before entered: takes what others have entered of the
 * next blocks, leaving one of n_ids. Returns the new position. */
uint32_t blocks_advance(struct blocks *b, struct block_table *tables, const struct request *r,
                        uint32_t position);

enum blocks_fit {
    BLOCKS_FIT,
    BLOCKS_FIT_SOON, /* blocks in quarantine will do: claimed for it until the next step */
    BLOCKS_FIT_NOT
};
/* Is there room to run [position, end)? */
enum blocks_fit blocks_fit(struct blocks *b, const struct block_table *tables, uint32_t position,
                           uint32_t end);
/* Drops what the window has left at position, allocates up to end, and lists in out what the ranks
 * do not know yet of this slot, at most one entry per group. Returns their number. */
uint32_t blocks_extend(struct blocks *b, struct block_table *tables, uint32_t slot,
                       uint32_t position, uint32_t end, struct plan_blocks *out);
/* Positions for which there are blocks in every group. */
uint32_t blocks_covered(const struct blocks *b, const struct block_table *tables);
/* [0, n_known) have known ids and are planned: what is full of them goes to the cache. Returns the
 * next n_known at which there will be something to enter. */
uint32_t blocks_enter(struct blocks *b, struct block_table *tables, const struct request *r,
                      uint32_t n_known);
/* For several that will enter one after the other: bring into the CPU's cache the tables, then what
 * enter will touch. */
void blocks_prefetch(const struct blocks *b, const struct block_table *tables);
void blocks_prefetch_enter(const struct blocks *b, const struct block_table *tables,
                           const struct request *r);
/* The whole prompt is computed: its last, partly filled block can be copied from now on. */
void blocks_enter_tail(struct blocks *b, struct block_table *tables, const struct request *r);
/* The known ids are all planned: nothing more is promised. */
void blocks_settle(struct blocks *b, struct block_table *tables);
void blocks_release(struct blocks *b, struct block_table *tables);
/* Sum of plan_digest_block over what the ranks know of the tables. */
uint64_t blocks_digest(const struct blocks *b, const struct block_table *tables);

/* ---- between the tables of two replicas (move.c) ---- */

/* The longest prefix of n_tokens at most that can be a hit. */
uint32_t blocks_align(const struct blocks *b, uint32_t n_tokens);
uint32_t blocks_n_parts(const struct blocks *b, uint32_t n_tokens);
/* One owner more for each block of the first n_tokens, aligned, of a sequence whose steps up to
 * there are done. False: a window has left some of them behind. */
bool blocks_hold(struct blocks *b, const struct block_table *tables, uint32_t n_tokens,
                 struct blocks_part *parts);
/* The blocks of r's first n_tokens, aligned: out of the cache, or free ones. r is hashed. False:
 * not as many as leave n_running sequences the room that an admission leaves them. */
bool blocks_import(struct blocks *b, const struct request *r, uint32_t n_tokens, uint32_t n_running,
                   struct blocks_part *parts);
/* They hold what r begins with: into the cache. They stay owned. */
void blocks_enter_parts(struct blocks *b, const struct request *r, const struct blocks_part *parts,
                        uint32_t n);
/* One owner less, of held ones and of imported ones. */
void blocks_let_go(struct blocks *b, const struct blocks_part *parts, uint32_t n);

void blocks_get_stats(const struct blocks *b, struct blocks_stats *out);
uint32_t blocks_tokens(const struct blocks *b, uint32_t i_group); /* of one block */
const struct block_pool *blocks_pool(const struct blocks *b, uint32_t i_group);
/* The blocks that partly computed prompts will still need; for tests. */
uint64_t blocks_promised(const struct blocks *b, uint32_t i_group);
/* Pools and caches consistent, for tests. */
bool blocks_check(const struct blocks *b, struct error *err);
