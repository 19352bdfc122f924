#pragma once
/* Defines `rig`: a part of the head that runs under the trace. `step_cost` is the cost of one of
 * its steps. */
#include <stdint.h>

#include "proto/messages.h"

enum phase { SCHEDULE, PLAN, RESULT, APPLY, TOKENS, N_PHASES };

/* `step_cost` describes one step: a plan is made, and the result of the previous plan is
 * applied. */
struct step_cost {
    uint64_t ns[N_PHASES]; /* time of each phase of a step; a whole turn counts in SCHEDULE */
    unsigned long n_mallocs;
    uint32_t n_sampled; /* sequences that sampled a token in the plan */
};

struct rig {
    void *state;
    /* Handles an arriving request as the head does. */
    void (*submit)(void *state, const struct msg_submit *m);
    void (*cancel)(void *state, struct request_id id);
    void (*step)(void *state, struct step_cost *out);
    void (*free)(void *state);
};

/* Returns the number of calls of malloc so far; 0 in a program that does not count them. */
typedef unsigned long bench_mallocs(void);
