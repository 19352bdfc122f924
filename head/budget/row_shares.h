#pragma once
/* How many decodes of each tenant run in a step, and how long prompts may make it, so that a tenant
 * with many streams cannot make those of others slow. Nobody's streams are to be slower than if the
 * tenants had the replica by turns (the sharing incentive of Ghodsi et al., "Dominant Resource
 * Fairness", NSDI 2011): with n tenants, costs of a step of pass + sampled * decodes
 * (step_budget.h) and d decodes of the tenant that has the fewest (of one that has none yet: its
 * sequences), a step takes at most
 *
 *     n * (pass + sampled * d), or a quarter of the step's target where that is more,
 *
 * its prompts included: so long a step is quick enough for everybody. Prompts have a quarter of it;
 * where the decodes fit into the rest, or into a third of the target, they all run. Else some wait:
 * of the tenants that have the most, so that all of these have equally much of a step, where the
 * prompts of a tenant count as its own. The rows of one take turns. Nothing is limited for one
 * tenant alone, without a target, and while the costs are unknown. With the third a step may take
 * 0.44 of the target, prompts included.
 *
 * Pure data, and the same function of the same results in cox-head, the simulator and a replay of a
 * step log. Owned by one scheduler. A step costs O(tenants), and per decode a few instructions,
 * where there are two tenants at least. */
#include <stdbool.h>
#include <stdint.h>

#include "head/budget/step_budget.h"

#define ROW_SHARES_MOST 1024u   /* tenants; the decodes of further ones are not limited */
#define ROW_SHARE_NONE  0xFFFFu /* the share of those */

struct row_share {
    uint64_t tenant;
    uint32_t n_inside;        /* its sequences; 0: not used */
    uint32_t n_prompts;       /* of those so many compute their prompts */
    uint32_t n_ready, n_last; /* its decodes that could run in this step, and in the last one */
    uint32_t n_may, from;     /* of those so many may, from this one on */
    uint64_t wanted;          /* of what is shared out: rows of a step, then its prompts' time */
    uint32_t time_left;       /* which its running prompts may still take, in tokens */
};

struct row_shares {
    struct row_share *all; /* [n] of [cap], some not used */
    uint32_t n, cap, n_tenants;
    bool limits;      /* those decodes that the last step had as well */
    uint32_t n_rows;  /* decodes that this step has at most; UINT32_MAX: any number */
    uint32_t n_fresh; /* so many of them may be new; n_fresh_ran: are */
    uint32_t n_fresh_ran;
    bool held;           /* one may not run */
    uint64_t longest_ns; /* it takes at most, UINT64_MAX: the target alone says that */
};

void row_shares_fini(struct row_shares *m); /* also: everything is forgotten */
/* A sequence of this tenant comes in. Returns its share, which stays while it is in. */
uint16_t row_shares_enter(struct row_shares *m, uint64_t tenant);
void row_shares_leave(struct row_shares *m, uint16_t i);
/* One of its sequences has begun to compute its prompt, or no longer does. */
void row_shares_prompt(struct row_shares *m, uint16_t i, bool begins);

/* Before a step is planned. n_each: rows that a decode has, with its draft tokens. has_prompts:
 * some run or wait. */
void row_shares_plan(struct row_shares *m, const struct step_budget *b, uint32_t n_each,
                     bool has_prompts);
/* Before each try to plan it. */
void row_shares_begin_step(struct row_shares *m);
/* Whether this decode, which could run, may. In the order in which sequences are served. */
bool row_shares_may_run(struct row_shares *m, uint16_t i);
void row_shares_end_step(struct row_shares *m);
/* The prompts' time of a step, in tokens, is shared too, so that long prompts of one tenant hold up
 * nobody else's: it is told what the running ones of each would take, then splits it evenly, each
 * tenant at most what it wants. Where one waits that has none running, as much is left for
 * newcomers. One tenant alone may take all. */
void row_shares_want_time(struct row_shares *m, uint16_t i, uint64_t n);
void row_shares_split_time(struct row_shares *m, uint32_t n, bool has_waiting);
/* This tenant's running prompts may still take so much. */
uint32_t row_shares_time_left(const struct row_shares *m, uint16_t i);
void row_shares_take_time(struct row_shares *m, uint16_t i, uint32_t n);
/* Nothing could run: no limits in this step. False: nothing is held back by any. */
bool row_shares_lift(struct row_shares *m);
