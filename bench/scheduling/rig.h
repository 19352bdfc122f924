#pragma once
/* The thing that is put under the trace, and what one step of it cost. */
#include <stdint.h>

#include "proto/messages.h"

enum phase { SCHEDULE, PLAN, RESULT, APPLY, TOKENS, N_PHASES };

/* One step: a plan made and the result of the plan before it applied. */
struct step_cost {
    uint64_t ns[N_PHASES]; /* of a turn: all in SCHEDULE */
    unsigned long n_mallocs;
    uint32_t n_sampled; /* sequences that sampled a token, by the plan */
};

struct rig {
    void *state;
    void (*submit)(void *state, const struct msg_submit *m); /* the arrival, as the head has it */
    void (*cancel)(void *state, struct request_id id);
    void (*step)(void *state, struct step_cost *out);
    void (*free)(void *state);
};

/* Calls of malloc so far; a program that does not count them gives 0. */
typedef unsigned long bench_mallocs(void);
