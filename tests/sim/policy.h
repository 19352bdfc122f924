#pragma once
/* Defines the interface between virtual time (timed.h) and a policy, which decides which
 * sequences a replica runs. The policy is our scheduler or another one. A policy identifies
 * requests by their index in the load. It does not know an answer's length before its last token
 * is sampled. One thread runs everything. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "head/scheduler/scheduler.h"
#include "tests/sim/cost.h"
#include "tests/sim/load.h"

/* POLICY_VOCAB is the size of the vocabulary. The null rule gives the tokens of each request and
 * choice. */
#define POLICY_VOCAB 262144u

/* A policy calls this while it handles a result: n_new tokens were sampled. `ended` means that
 * they were the last. */
typedef void policy_tokens_fn(void *ctx, uint32_t i, uint32_t n_new, bool ended);

struct policy_config {
    struct scheduler_config scheduler;
    const struct load_config *load_config;
    const struct load *load;
    policy_tokens_fn *on_tokens;
    void *ctx;
    /* vLLM's --scheduling-policy priority; our policy always has priority classes */
    bool by_priority;
    uint32_t accept_percent; /* chance that a draft token is accepted (cost.h) */
    uint32_t check_every;    /* plans between two checks of all invariants; 0 = never */
};

/* Holds a policy's functions. A function returns false when a property is violated; err names
 * the property. */
struct policy_ops {
    const char *name;
    /* true: the policy handles deadlines; false: clients disconnect at their deadlines */
    bool deadlines;
    void *(*open)(const struct policy_config *c, struct error *err);
    void (*close)(void *p);
    bool (*add)(void *p, uint32_t i, uint64_t now_ns, bool *refused, struct error *err);
    void (*remove)(void *p, uint32_t i);
    /* Makes a plan. *work is the plan's work, for its cost. *made is false when no sequence can
     * run, or when the maximum of plans is in flight. */
    bool (*step)(void *p, uint64_t now_ns, bool *made, struct cost_work *work, struct error *err);
    /* Called when the oldest plan in flight has run. */
    bool (*on_result)(void *p, uint64_t now_ns, uint64_t execute_ns, struct error *err);
    /* Called when the ranks were lost with all their state and the plans in flight. pop_ended
     * then returns the requests that do not survive this loss. */
    bool (*lose)(void *p, struct error *err);
    /* Returns a request that ended without a token, by a deadline or because it was *lost.
     * Returns UINT32_MAX when there is no more. */
    uint32_t (*pop_ended)(void *p, bool *lost);
    /* Returns whether request i, which has not ended, still waits for its first admission. When
     * it does not wait, the function also gives how many tokens of its prompt were computed for
     * it (and not found in a cache). */
    bool (*waits)(void *p, uint32_t i);
    uint32_t (*prompt_tokens)(void *p, uint32_t i);
    bool (*drained)(void *p, struct error *err);
    uint64_t (*n_preemptions)(void *p);
};

extern const struct policy_ops policy_cox, policy_vllm;
