#pragma once
/* Predicts when a new request of one replica gets its first token. The steps until then are
 * replayed roughly: running prompts, waiting prompts in front of the request and the request
 * share the prompt tokens of each step as the scheduler shares them, and the decodes run beside
 * them. The work is bounded by FIRST_TOKEN_STEPS; a longer queue is extrapolated. The code is
 * pure. docs/develop/head.md, "Promises", has the rules. */
#include <stdbool.h>

#include "head/budget/step_budget.h"
#include "head/promise/step_cost.h"

#define FIRST_TOKEN_PROMPTS 64u  /* most running prompts that are replayed one by one */
#define FIRST_TOKEN_STEPS   512u /* most steps that are replayed */
#define FIRST_TOKEN_FLIGHT  2u   /* most steps in flight */

struct first_token_prompt {
    double n_left, start; /* tokens still to be computed, and the positions before them */
};

/* Describes a replica, and a new request behind the prompts in front of it. */
struct first_token_work {
    /* limits of a step (scheduler_config) */
    uint32_t depth, n_rows_max, n_each, chunk, n_partial_max;
    const struct step_budget *budget;
    uint64_t longest_ns; /* longest step (row_shares.h) */
    /* decodes; n_context: sum of their positions; mean_answer: tokens until one ends */
    double n_decodes, n_context, mean_answer;
    /* prompts that run, in the order of service */
    struct first_token_prompt running[FIRST_TOKEN_PROMPTS];
    uint32_t n_running;
    double n_ahead, n_ahead_tokens; /* prompts in front of the request, and their tokens */
    struct first_token_prompt own;
    /* free slots, and free positions in the KV cache; per_end: positions that an end frees */
    double n_free_slots, n_free_tokens, n_tokens_per_end;
    /* requests that arrive later take what the request leaves of a step: per ns */
    double later_tokens, later_requests;
};

/* Holds the expected rest of the steps in flight, ns, the oldest first. */
struct first_token_flight {
    double left_ns[FIRST_TOKEN_FLIGHT];
    uint32_t n;
};

/* Returns true when the next plan is expected to have the request in it. */
bool first_token_is_next(const struct first_token_work *w);
/* Returns the expected time from now to the first token, ns. */
double first_token_ns(const struct first_token_work *w, const struct step_cost *cost,
                      const struct first_token_flight *flight);
