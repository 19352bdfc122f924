#pragma once
/* The block table beside a model that is too simple to be wrong: plain arrays of who owns what and
 * of what every place of every block holds. A rank in the model executes the steps in order when
 * their results come. What a place holds is the hash of all ids up to its position: a run whose
 * blocks do not hold exactly the ids before it, in every KV group, has been given a wrong block.
 *   blocks_model.c   what must be so
 *   blocks_play.c    a small scheduler that does what bytes say */
#include "head/kv/blocks.h"

enum {
    MODEL_SEQS = 6,
    MODEL_GROUPS = 3,
    MODEL_LEN = 192, /* positions of a sequence */
    MODEL_BLOCKS = 48,
    MODEL_DEPTH = 4, /* steps in flight, as many as the pool allows */
    MODEL_TABLE = MODEL_LEN / 16,
    MODEL_MOVES = 3,
};

/* What a rank was told of a sequence's blocks. */
struct model_table {
    uint32_t first, n, ids[MODEL_TABLE];
};

struct model_seq {
    struct request r;
    uint32_t ids[MODEL_LEN];
    bool used, running, ended;
    uint32_t slot, incarnation, n_refs; /* refs: runs in flight */
    /* as in the scheduler's struct seq */
    uint32_t n_scheduled, n_total, n_ahead, n_pending, n_untold, enter_at;
    bool tail_shared, has_run; /* in the plan being made */
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
    struct model_run runs[MODEL_SEQS]; /* decodes, then prompts */
    struct plan_copy copies[MODEL_SEQS * MODEL_GROUPS];
    uint32_t n_runs, n_decodes, n_copies;
};

struct model_block {
    uint64_t holds[64]; /* per place: of all ids up to it */
    uint32_t owners;
    uint64_t let_go; /* the last step sent when it lost its last owner */
    uint64_t sent;   /* the last step sent while it had one */
};

struct model_prompt {
    uint32_t n, parts_at, which;
    bool salt, lora;
};

/* Blocks on their way to another table, or from there. */
struct model_move {
    bool used, imports, whole;
    struct request prefix; /* what they hold, or will */
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
    struct model_step steps[MODEL_DEPTH]; /* by number % MODEL_DEPTH */
    struct model_move moves[MODEL_MOVES];
    struct model_prompt prompt; /* of the last request */
    uint64_t step_sent, step_done, n_requests, n_garbage;
    struct model_stats stats;
    bool failed;
    struct error err; /* the first thing that did not hold */
};

void model_hold(struct model *m, bool ok, const char *text, const char *file, int line);
#define HOLD(m, cond) model_hold((m), (cond), #cond, __FILE__, __LINE__)

/* Counts owners anew and compares: with the pools, with the promises, with each digest. After every
 * call. */
void model_look(struct model *m);
/* These blocks were just handed out: nobody may be using them. */
void model_handed_out(struct model *m, uint32_t i_group, const uint32_t *ids, uint32_t n);
/* What the plan says of the sequence's blocks; end: of the run. */
void model_told(struct model *m, struct model_seq *x, uint32_t end, const struct plan_blocks *out,
                uint32_t n);
void model_sent(struct model *m);
/* The rank runs it: rows from start, the first n_known of them with ids that are r's, the others
 * draft tokens that were wrong. */
void model_run(struct model *m, const struct model_run *run, uint32_t start, uint32_t n_known);
void model_copy(struct model *m, const struct plan_copy *c);
/* The blocks of a move hold what it says; write: from now on, those that came from elsewhere. */
void model_moved(struct model *m, const struct model_move *x, bool write);
/* What the rank samples after r's ids so far: requests with the same ids get the same. */
uint32_t model_sample(const struct model *m, const struct request *r);

/* Plays these bytes. False: err says what did not hold. stats, where not NULL, are added to. */
bool blocks_play(const uint8_t *data, size_t size, struct model_stats *stats, struct error *err);
