#pragma once
/* The policy decides what a replica runs: the interface between virtual time (timed.h) and a
 * scheduler, ours or another one's. A policy knows requests by their index in the load. It never
 * sees an answer's length before its last token is sampled. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "head/scheduler/scheduler.h"
#include "tests/sim/cost.h"
#include "tests/sim/load.h"

#define POLICY_VOCAB 262144u /* tokens follow from the null rule, by request and choice */

/* Called by a policy while it takes a result: n_new tokens were sampled; ended: these were the
 * last.
 */
typedef void policy_tokens_fn(void *ctx, uint32_t i, uint32_t n_new, bool ended);

struct policy_config {
    struct scheduler_config scheduler;
    const struct load_config *load_config;
    const struct load *load;
    policy_tokens_fn *on_tokens;
    void *ctx;
    bool by_priority;        /* vLLM's --scheduling-policy priority; ours always knows classes */
    uint32_t accept_percent; /* of draft tokens: cost.h */
    uint32_t check_every;    /* plans between two checks of every invariant; 0: never */
};

/* What a plan runs, for its cost. Functions return false when a property is violated: err says
 * which. */
struct policy_ops {
    const char *name;
    bool deadlines; /* it knows them; else clients hang up when they pass */
    void *(*open)(const struct policy_config *c, struct error *err);
    void (*close)(void *p);
    bool (*add)(void *p, uint32_t i, uint64_t now_ns, bool *refused, struct error *err);
    void (*remove)(void *p, uint32_t i);
    /* *made false: nothing to run, or as many plans in flight as may be. */
    bool (*step)(void *p, uint64_t now_ns, bool *made, struct cost_work *work, struct error *err);
    /* The oldest plan in flight has run. */
    bool (*on_result)(void *p, uint64_t now_ns, uint64_t execute_ns, struct error *err);
    /* The ranks were lost with all they had, plans in flight too. Who does not outlive that is
     * popped. */
    bool (*lose)(void *p, struct error *err);
    /* Requests that ended without a token: a deadline, or *lost. UINT32_MAX: no more. */
    uint32_t (*pop_ended)(void *p, bool *lost);
    /* Whether request i, which has not ended, waits for its first admission; and, when it does not
     * any more, how many tokens of its prompt are computed for it (and not found in a cache). */
    bool (*waits)(void *p, uint32_t i);
    uint32_t (*prompt_tokens)(void *p, uint32_t i);
    bool (*drained)(void *p, struct error *err);
    uint64_t (*n_preemptions)(void *p);
};

extern const struct policy_ops policy_cox, policy_vllm;
