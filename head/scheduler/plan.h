#pragma once
/* The plan that a step is making: a sequence's run is put into it here. */
#include "head/scheduler/state.h"

struct run_size {
    uint32_t n_tokens, n_draft;
};
/* How far the ranks may get with this run: the token at n_cap - 1 is never run. */
uint32_t plan_furthest(const struct seq *x, struct run_size size);
/* x runs in this step; blocks_fit, or fit_admit, said yes. prompt: it has to stand behind the
 * prompts planned before it. */
void plan_add_run(struct scheduler *s, struct seq *x, struct run_size size, bool prompt);
/* The same where the run is known to have its blocks. */
struct plan_run *plan_put_run(struct scheduler *s, struct seq *x, struct run_size size,
                              bool prompt);
