#pragma once
/* Decides how many decodes of each tenant run in a step, and how long prompts may make the step.
 * A tenant with many streams then cannot slow down those of others. No tenant's streams are
 * slower than if the tenants used the replica by turns (the sharing incentive of Ghodsi et al.,
 * "Dominant Resource Fairness", NSDI 2011).
 *
 * Let n be the number of tenants and pass + sampled * decodes the cost of a step
 * (step_budget.h). Let d be the number of decodes of the tenant that has the fewest. A tenant
 * without decodes counts its sequences instead. A step, its prompts included, takes at most
 *
 *     n * (pass + sampled * d), or a quarter of the step's target if that is more.
 *
 * Prompts get a quarter of that time. All decodes run if they fit into the rest, or into a third
 * of the target. Otherwise some decodes of the tenants with the most decodes wait, so that these
 * tenants get equal parts of the step. A tenant's prompts count as part of its share. The
 * decodes of one tenant take turns. Nothing is limited for a single tenant, without a target, or
 * while the costs are unknown. Decodes in a third of the target lead to a step of at most 0.44
 * of the target, prompts included.
 *
 * The code is deterministic: the same results lead to the same decisions in cox-head, in the
 * simulator and in a replay of a step log. One scheduler owns the data. With at least two
 * tenants a step costs O(tenants) and a few instructions per decode. */
#include <stdbool.h>
#include <stdint.h>

#include "head/budget/step_budget.h"

#define ROW_SHARES_MOST 1024u   /* most tenants with a share; further tenants are not limited */
#define ROW_SHARE_NONE  0xFFFFu /* index of the share for tenants that are not limited */

struct row_share {
    uint64_t tenant;
    uint32_t n_inside;        /* sequences of the tenant; 0 = unused share */
    uint32_t n_prompts;       /* sequences that compute their prompts */
    uint32_t n_ready, n_last; /* decodes that could run in this step, and in the last one */
    uint32_t n_may, from;     /* decodes that may run, and the ring index of the first one */
    /* amount that the tenant wants: first rows of a step, then tokens of prompt time */
    uint64_t wanted;
    uint32_t time_left; /* prompt time left in this step, in tokens */
};

struct row_shares {
    struct row_share *all; /* array of n shares, with capacity cap; some shares are unused */
    uint32_t n, cap, n_tenants;
    bool limits;      /* some of the decodes that also ran in the last step must wait */
    uint32_t n_rows;  /* most decodes of this step; UINT32_MAX = no limit */
    uint32_t n_fresh; /* most new decodes in this step; n_fresh_ran: new decodes planned so far */
    uint32_t n_fresh_ran;
    bool held;           /* a decode was held back in this step */
    uint64_t longest_ns; /* most time of this step; UINT64_MAX = limited by the target alone */
};

void row_shares_fini(struct row_shares *m); /* row_shares_fini also resets everything */
/* Adds a sequence of this tenant. Returns the index of its share, which stays valid while the
 * sequence is entered. Returns ROW_SHARE_NONE when there are too many tenants. */
uint16_t row_shares_enter(struct row_shares *m, uint64_t tenant);
void row_shares_leave(struct row_shares *m, uint16_t i);
/* Records in the share that one of its sequences begins its prompt, or no longer computes it. */
void row_shares_prompt(struct row_shares *m, uint16_t i, bool begins);

/* Computes the limits of a step. Call it before the step is planned. `n_each` is the number of
 * rows of one decode, draft tokens included. `has_prompts` is true when prompts run or wait. */
void row_shares_plan(struct row_shares *m, const struct step_budget *b, uint32_t n_each,
                     bool has_prompts);
/* Resets the counts of the step. Call it before each attempt to plan the step. */
void row_shares_begin_step(struct row_shares *m);
/* Returns true when this decode may run in the step. Call it for each decode that could run, in
 * the order in which sequences are served. */
bool row_shares_may_run(struct row_shares *m, uint16_t i);
void row_shares_end_step(struct row_shares *m);
/* Splits the prompts' time of a step, in tokens, so that long prompts of one tenant do not delay
 * others. row_shares_want_time declares what a running prompt would take. row_shares_split_time
 * then splits the time evenly, and gives each tenant at most what it wants. If a waiting tenant
 * has no prompt running, an equal part is left for newcomers. A tenant that is alone may take
 * everything. */
void row_shares_want_time(struct row_shares *m, uint16_t i, uint64_t n);
void row_shares_split_time(struct row_shares *m, uint32_t n, bool has_waiting);
/* Returns the prompt time that this tenant's running prompts may still take, in tokens. */
uint32_t row_shares_time_left(const struct row_shares *m, uint16_t i);
void row_shares_take_time(struct row_shares *m, uint16_t i, uint32_t n);
/* Removes the limits of this step. The caller uses it when nothing could run. Returns false when
 * no decode was held back. */
bool row_shares_lift(struct row_shares *m);
