#pragma once
/* What a rank knows of the sequences it executes, by slot: ids (prompt, then sampled), positions
 * computed, block table per KV group, sampling. Every executor shares this. A plan is hostile until
 * sequences_apply has accepted it: slots, lengths, positions, block ids, digest. After a plan was
 * refused the table refuses everything until sequences_reset: the head and we no longer agree. Owns
 * all it holds; compute thread only. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sequences/ngram.h"

#define SEQUENCES_MAX_KV_GROUPS 8u
#define SEQUENCES_MAX_SLOTS     65536u
#define SEQUENCES_MAX_DRAFT     16u /* draft tokens of a run; a plan that grants more gets no more */

struct rank_block_table {
    uint32_t *ids; /* [n] blocks held; ids[0] covers positions from n_dropped * block_tokens */
    uint32_t n, cap, n_dropped;
    uint64_t digest; /* the sum of its blocks' terms (proto/plan_digest.h) */
};

struct sequence {
    uint32_t slot, n_prompt;
    uint64_t serial;     /* of its admission: another sequence of the slot has another one */
    uint32_t n_computed; /* KV of ids[0..n_computed) is in the blocks once the plan has run */
    uint32_t *ids;       /* [n_ids] prompt + sampled, then the draft tokens of the run at hand */
    uint32_t n_ids, ids_cap;
    uint64_t ran_in_step;            /* the last step that ran it: a slot runs once a step */
    struct sampling_params sampling; /* spans point into arena */
    struct arena arena;
    struct rank_block_table tables[SEQUENCES_MAX_KV_GROUPS];
    struct draft_ngram draft;
    /* 1: the position in front of the last id was a draft model's last draft token, and it was
     * right: the draft has not run it (draft/model.c). Else 0. */
    uint32_t draft_lacks;
    /* A pooling request's, on the sampling rank. [hidden] on the arena, the sum of n_pooled rows;
     * vector is on the step's arena. */
    double *pooled;
    uint32_t n_pooled;
    struct f32_span vector;
    bool is_pending; /* its newest id is only a place for it as yet: another stage, or a device that
                      * has not ended the step, knows it */
    uint32_t adapter; /* the executor's: of its rows; 0: none */
    struct sequence *next_free;
};

/* A run of the plan as it is to be executed: positions start .. start + n_tokens - 1, which are
 * ids, then the draft tokens q->ids[n_ids ..). With sample a token is sampled behind the last id
 * and behind each draft token. n_tokens 0: the sequence has reached its length, nothing runs,
 * nothing is sampled. */
struct sequence_run {
    struct sequence *q;
    uint32_t start, n_tokens;
    uint32_t n_draft;   /* draft tokens that may be made: granted, and there is room for them */
    uint32_t n_drafted; /* that were made, by the executor; 0 until then */
    bool sample;
};
/* Positions of a run whose next id is one of a prompt with prompt_logprobs: its first ones. */
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
/* No sequences, and n_blocks as the formed group has agreed (one per KV group; n 0: keep). */
MUST_USE enum status sequences_reset(struct sequences *s, struct u32_span n_blocks,
                                     struct error *err);
/* Finished leave, copies are checked, admits enter, runs get their blocks and positions. On an
 * error nothing may be executed (STATUS_PROTOCOL, with a text for Gap). */
MUST_USE enum status sequences_apply(struct sequences *s, const struct msg_plan *p,
                                     struct error *err);
/* The runs of the plan that was accepted last, in its order; valid until the next call with s. */
struct sequence_runs sequences_runs(const struct sequences *s);
/* NULL for an empty slot. */
struct sequence *sequences_find(const struct sequences *s, uint32_t slot);
/* A vector takes no room: the token that comes with one is never run. */
uint32_t sequence_most_ids(const struct sequence *q, uint32_t max_model_len);
/* Appends a sampled token; what lies before it has been computed then. False at the model's length:
 * the head must not have asked. */
bool sequence_push(struct sequence *q, uint32_t id, uint32_t max_model_len);
/* As a plan would carry it now. Walks the sequences, not their tables. */
uint64_t sequences_digest(const struct sequences *s);
