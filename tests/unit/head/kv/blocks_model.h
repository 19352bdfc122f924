#pragma once
/* Compares the block table with a simple model: plain arrays of the owners of blocks and of the
 * content of each place of each block. A rank in the model executes the steps in order when
 * their results arrive. A place holds the hash of all ids up to its position. A run was given a
 * wrong block when its blocks do not hold exactly the ids before it, in every KV group.
 *   blocks_model.c   the invariants
 *   blocks_play.c    a small scheduler that makes the choices encoded in given bytes */
#include "head/kv/blocks.h"

enum {
    MODEL_SEQS = 6,
    MODEL_GROUPS = 3,
    MODEL_LEN = 192, /* longest sequence, in positions */
    MODEL_BLOCKS = 48,
    MODEL_DEPTH = 4, /* most steps in flight that the pool allows */
    MODEL_TABLE = MODEL_LEN / 16,
    MODEL_MOVES = 3,
};

/* Holds the block table of a sequence as a rank knows it from the plans. */
struct model_table {
    uint32_t first, n, ids[MODEL_TABLE];
};

struct model_seq {
    struct request r;
    uint32_t ids[MODEL_LEN];
    bool used, running, ended;
    uint32_t slot, incarnation, n_refs; /* n_refs: runs in flight */
    /* The next fields mean the same as in the scheduler's `struct seq`. */
    uint32_t n_scheduled, n_total, n_ahead, n_pending, n_untold, enter_at;
    bool tail_shared, has_run; /* both flags are about the plan that is being made */
    struct block_table tables[MODEL_GROUPS];
    uint32_t table_ids[MODEL_GROUPS * MODEL_TABLE];
    struct model_table told[MODEL_GROUPS];
};

struct model_run {
    struct model_seq *seq;
    uint32_t start, n_tokens, n_draft, incarnation;
    bool sample, follows;
    struct model_table tables[MODEL_GROUPS];
};

struct model_step {
    struct model_run runs[MODEL_SEQS]; /* runs of the plan; decodes first, then prompts */
    struct plan_copy copies[MODEL_SEQS * MODEL_GROUPS];
    uint32_t n_runs, n_decodes, n_copies;
};

struct model_block {
    uint64_t holds[64]; /* digest of all ids up to each place */
    uint32_t owners;
    uint64_t let_go; /* last step sent when the block lost its last owner */
    uint64_t sent;   /* last step sent while the block had an owner */
};

struct model_prompt {
    uint32_t n, parts_at, which;
    bool salt, lora;
};

/* Describes blocks that move to another table or come from one. */
struct model_move {
    bool used, imports, whole;
    struct request prefix; /* ids that the blocks hold, or will hold */
    uint32_t ids[MODEL_LEN], n;
    struct blocks_part parts[MODEL_GROUPS * MODEL_TABLE];
};

struct model_stats {
    uint32_t n_held, n_imported, n_refused, n_let_go_early, n_steps, n_hit_tokens, n_advanced,
        n_copies, n_evictions, n_soon, n_preempted, n_finished, n_alone, n_accepted;
};

struct model {
    struct blocks *b;
    struct kv_group groups[MODEL_GROUPS];
    struct blocks_config c;
    uint32_t depth, n_draft;
    struct model_seq seqs[MODEL_SEQS];
    struct model_block blocks[MODEL_GROUPS][MODEL_BLOCKS];
    struct model_step steps[MODEL_DEPTH]; /* steps by step number % MODEL_DEPTH */
    struct model_move moves[MODEL_MOVES];
    struct model_prompt prompt; /* prompt of the last request */
    uint64_t step_sent, step_done, n_requests, n_garbage;
    struct model_stats stats;
    bool failed;
    struct error err; /* first invariant that failed */
};

void model_hold(struct model *m, bool ok, const char *text, const char *file, int line);
#define HOLD(m, cond) model_hold((m), (cond), #cond, __FILE__, __LINE__)

/* Counts the owners of all blocks again, and compares them with the pools, the promises and the
 * digests. Call it after each call of `blocks`. */
void model_look(struct model *m);
/* Checks that these blocks, which were just allocated, have no other user. */
void model_handed_out(struct model *m, uint32_t i_group, const uint32_t *ids, uint32_t n);
/* Checks and records the blocks that a plan lists for the sequence. `end` is the position after
 * the run. */
void model_told(struct model *m, struct model_seq *x, uint32_t end, const struct plan_blocks *out,
                uint32_t n);
void model_sent(struct model *m);
/* Executes the run as a rank does, with rows from `start` on. The first `n_known` rows have ids
 * of the request, and the others are rejected draft tokens. */
void model_run(struct model *m, const struct model_run *run, uint32_t start, uint32_t n_known);
void model_copy(struct model *m, const struct plan_copy *c);
/* Checks that the blocks of a move hold the digests of its prefix. `write` stores the digests
 * first, for blocks that came from elsewhere. */
void model_moved(struct model *m, const struct model_move *x, bool write);
/* Returns the token that the rank samples after the request's ids. It depends only on those ids. */
uint32_t model_sample(const struct model *m, const struct request *r);

/* Plays the scheduler's choices that the bytes encode. Adds to `stats` unless it is NULL.
 * Returns false, with the failed invariant in `err`. */
bool blocks_play(const uint8_t *data, size_t size, struct model_stats *stats, struct error *err);
