#pragma once
/* Adds runs to the plan of the step that is being made. */
#include "head/scheduler/state.h"

struct run_size {
    uint32_t n_tokens, n_draft;
};
/* Returns the last position + 1 that ranks may reach with this run. The token at n_cap - 1 is
 * never run. */
uint32_t plan_furthest(const struct seq *x, struct run_size size);
/* Adds a run of `x`. blocks_fit or blocks_fit_admit must have accepted it. With `prompt`, the
 * run goes after the prompts that are planned already. */
void plan_add_run(struct scheduler *s, struct seq *x, struct run_size size, bool prompt);
/* Adds a run like plan_add_run, for a run that has its blocks already. */
struct plan_run *plan_put_run(struct scheduler *s, struct seq *x, struct run_size size,
                              bool prompt);
/* Returns the number of draft tokens for each decode of this step: all that are allowed, or
 * none. */
uint32_t plan_drafts_of_step(const struct scheduler *s);
