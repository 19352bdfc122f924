#pragma once
/* Decides which requests of scheduler_bench arrive, and which end. */
#include "common/base/random.h"
#include "proto/messages.h"

enum {
    BLOCK_TOKENS = 16,
    MODEL_LEN = 16384,
    VOCABULARY = 128256,
    DEPTH = 2,
};

/* `slot` is the slot of a running sequence. A new sequence replaces a sequence that ends in the
 * same slot. */
struct slot {
    uint64_t generation;
    bool is_newcomer;
};

struct trace {
    struct rng rng;
    uint32_t n; /* number of slots */
    struct slot *slots;
    uint32_t *ended; /* slots whose request has ended and has not been replaced yet */
    uint32_t n_ended;
    bool ends; /* whether sequences end in the next steps */
    double owed_ends;
    uint32_t *prefixes, *ids;
    bool *slot_ended; /* whether the end of the slot's request is decided already */
    struct result_item *items;
    uint32_t *sampled;
    float *gaps;
    bool counts; /* whether the plans of the next steps count in the next fields */
    uint64_t n_plans, n_runs, n_blocks, n_admits, n_hit_tokens, n_ends;
};

void trace_init(struct trace *t, uint32_t n, uint64_t seed);
void trace_fini(struct trace *t);
/* Fills *out with the next request of the slot; its spans are valid until the next call. */
void trace_submit(struct trace *t, uint32_t i_slot, bool newcomer, struct msg_submit *out);
/* Fills *out with a rank's answer to the plan; valid until the next call. */
void trace_answer(struct trace *t, const struct msg_plan *p, struct msg_result *out);
uint32_t trace_n_blocks(uint32_t n);      /* Returns the number of blocks of the pool. */
uint32_t trace_budget_tokens(uint32_t n); /* Returns the token budget of a step. */
