#pragma once
/* Learns how long the steps of one replica take, as the head sees them, so that the time until a
 * first token can be predicted (first_token.h). Unlike step_budget.h, which only has to keep
 * steps short, the estimate covers every replica, the way of plan and result, and the positions
 * that attention reads. The code allocates nothing and has no clock.
 *
 * Model: time = pass + row * n_rows + token * n_tokens + context * n_context. Least squares of
 * the relative errors over the last few hundred steps give the four costs. A level follows the
 * last few steps, because the speed of a shared machine changes quickly (docs/develop/head.md,
 * "Promises"). */
#include <stdbool.h>
#include <stdint.h>

enum { STEP_COST_TERMS = 4 };

/* Describes the work of one step. */
struct step_work {
    double n_rows;    /* rows that sample a token */
    double n_tokens;  /* other rows, so all rows of a prompt but its last one */
    double n_context; /* sum over all rows of the positions before them */
};

struct step_cost {
    /* decayed sums of the normal equations, over the terms of a step divided by its time */
    double xx[STEP_COST_TERMS][STEP_COST_TERMS], xy[STEP_COST_TERMS];
    double cost[STEP_COST_TERMS]; /* ns for each term; all 0 = unknown */
    double level_seen, level_fit; /* decayed sums of step times, and of what the costs give */
    uint32_t n_results;
};

/* Starts the estimate of a replica with that of `like`; NULL = unknown. */
void step_cost_init(struct step_cost *c, const struct step_cost *like);
/* Updates the estimate from a step that took `ns`. A time of 0 is ignored. */
void step_cost_on_result(struct step_cost *c, const struct step_work *w, double ns);
/* Returns true when enough steps were measured for a prediction. */
bool step_cost_is_known(const struct step_cost *c);
/* Returns the expected time of a step, ns. */
double step_cost_ns(const struct step_cost *c, const struct step_work *w);
/* Returns how much longer a step takes with this work added, ns. */
double step_cost_added_ns(const struct step_cost *c, const struct step_work *w);
