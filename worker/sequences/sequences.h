#pragma once
/* Keeps the state of the sequences that a rank executes, by slot: ids (prompt, then sampled),
 * computed positions, a block table per KV group, and sampling parameters. All executors use it.
 * A plan is not trusted until sequences_apply has checked slots, lengths, positions, block ids
 * and digest. After a refused plan, every plan is refused until sequences_reset, because head
 * and rank no longer agree. `sequences` owns all its data and belongs to the compute thread. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sequences/ngram.h"

#define SEQUENCES_MAX_KV_GROUPS 8u
#define SEQUENCES_MAX_SLOTS     65536u
#define SEQUENCES_MAX_DRAFT     16u /* limit of draft tokens per run, even if a plan allows more */

struct rank_block_table {
    /* [n] block numbers; ids[0] has the positions from n_dropped * block_tokens on */
    uint32_t *ids;
    uint32_t n, cap, n_dropped;
    uint64_t digest; /* sum over the table's blocks (proto/plan_digest.h) */
};

struct sequence {
    uint32_t slot, n_prompt;
    uint64_t serial; /* number of the sequence's admission, different for each sequence of a slot */
    /* number of ids whose keys and values are in the blocks after the plan */
    uint32_t n_computed;
    uint32_t *ids; /* [n_ids] prompt and sampled ids, then the draft tokens of the present run */
    uint32_t n_ids, ids_cap;
    uint64_t ran_in_step; /* last step that ran the sequence: a slot runs at most once per step */
    struct sampling_params sampling; /* the spans of these parameters are on `arena` */
    struct arena arena;
    struct rank_block_table tables[SEQUENCES_MAX_KV_GROUPS];
    struct draft_ngram draft;
    /* 1 when the draft model has not run the position before the last id, else 0. The target has
     * then accepted the draft model's own last draft token at that position (draft/model.c). */
    uint32_t draft_lacks;
    /* Sum of the hidden states of n_pooled rows, [hidden] on the arena; only for a pooling
     * request, on the sampling rank. `vector` is on the step's arena. */
    double *pooled;
    uint32_t n_pooled;
    struct f32_span vector;
    /* The newest id is an empty place. Another stage, or the device during the step, has the id. */
    bool is_pending;
    uint32_t adapter; /* number of the sequence's adapter, set by the executor; 0 = none */
    struct sequence *next_free;
};

/* `sequence_run` is a run of the plan in the form in which it is executed: positions start ..
 * start + n_tokens - 1, then the draft tokens q->ids[n_ids ..). With `sample` a token is sampled
 * after the last id and after each draft token. n_tokens is 0 when the sequence has reached its
 * length. Then the run has no rows and no samples. */
struct sequence_run {
    struct sequence *q;
    uint32_t start, n_tokens;
    /* number of draft tokens that the plan allows and the sequence's length permits */
    uint32_t n_draft;
    uint32_t n_drafted; /* draft tokens made by the executor; 0 until then */
    bool sample;
};
/* Returns the number of rows of a run that yield prompt_logprobs. These are the first rows,
 * whose next id is also in the prompt. */
static inline uint32_t sequence_run_n_prompt_logprobs(const struct sequence_run *r)
{
    uint32_t last = r->q->n_prompt - 1, left = r->start < last ? last - r->start : 0;
    if (r->q->sampling.n_prompt_logprobs < 0)
        return 0;
    return r->n_tokens < left ? r->n_tokens : left;
}
struct sequence_runs {
    struct sequence_run *ptr;
    uint32_t n;
};

struct sequences_limits {
    uint32_t max_model_len, vocab_size;
    uint32_t n_kv_groups;
    struct kv_group kv_groups[SEQUENCES_MAX_KV_GROUPS];
};

struct sequences;
struct sequences *sequences_new(const struct sequences_limits *limits);
void sequences_free(struct sequences *s);
/* Drops all sequences. n_blocks has the block counts that the replica has agreed on, one per KV
 * group; empty = keep them. */
MUST_USE enum status sequences_reset(struct sequences *s, struct u32_span n_blocks,
                                     struct error *err);
/* Applies a plan: finished sequences leave, copies are checked, new sequences enter, and runs
 * get their blocks and positions. After an error (STATUS_PROTOCOL, with a text for Gap) the plan
 * must not be executed. */
MUST_USE enum status sequences_apply(struct sequences *s, const struct msg_plan *p,
                                     struct error *err);
/* Returns the runs of the last accepted plan, in its order; valid until the next call. */
struct sequence_runs sequences_runs(const struct sequences *s);
/* Returns the sequence in the slot; NULL for an empty slot. */
struct sequence *sequences_find(const struct sequences *s, uint32_t slot);
/* Returns the most ids that a sequence may have. A pooling request may have one more than
 * others, because the id that is sent with its vector is never run. */
uint32_t sequence_most_ids(const struct sequence *q, uint32_t max_model_len);
/* Appends a sampled id; all ids before it count as computed. Returns false at the model's
 * length, which the head should not exceed, or when there is no memory. */
bool sequence_push(struct sequence *q, uint32_t id, uint32_t max_model_len);
/* Returns the digest that a plan would contain now. The function walks the sequences but not
 * their tables. */
uint64_t sequences_digest(const struct sequences *s);
