#pragma once
/* The trace of scheduler_bench: which request arrives, and which ends. */
#include "common/base/random.h"
#include "proto/messages.h"

enum {
    BLOCK_TOKENS = 16,
    MODEL_LEN = 16384,
    VOCABULARY = 128256,
    DEPTH = 2,
};

/* A running sequence's place. Whoever ends is replaced by a newcomer in the same slot. */
struct slot {
    uint64_t generation;
    bool is_newcomer;
};

struct trace {
    struct rng rng;
    uint32_t n; /* slots */
    struct slot *slots;
    uint32_t *ended; /* slots whose request has ended since it was last emptied */
    uint32_t n_ended;
    bool ends; /* sequences end */
    double owed_ends;
    uint32_t *prefixes, *ids;
    bool *slot_ended; /* the end of who has the slot was drawn already */
    struct result_item *items;
    uint32_t *sampled;
    float *gaps;
    bool counts; /* the plans of these steps are counted: */
    uint64_t n_plans, n_runs, n_blocks, n_admits, n_hit_tokens, n_ends;
};

void trace_init(struct trace *t, uint32_t n, uint64_t seed);
void trace_fini(struct trace *t);
/* The request that takes the slot now; its spans are valid until the next call. */
void trace_submit(struct trace *t, uint32_t i_slot, bool newcomer, struct msg_submit *out);
/* Fills out with the answer of a rank; valid until the next call. */
void trace_answer(struct trace *t, const struct msg_plan *p, struct msg_result *out);
uint32_t trace_n_blocks(uint32_t n);      /* of the pool */
uint32_t trace_budget_tokens(uint32_t n); /* of a step */
