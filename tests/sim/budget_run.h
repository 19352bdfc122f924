#pragma once
/* The step budget over one curve, with two steps in flight, beside somebody who knows the curve and
 * obeys the same rules (target, the prompts' least share, floor). The budget sees times with noise;
 * a prompt's time is counted without it, on both sides. */
#include "tests/sim/budget_curve.h"

enum { BUDGET_RUN_STEPS = 1500, BUDGET_LONG_STEPS = 5 };

struct budget_report {
    /* Steps with decodes, but for the five behind each jump; those over 1.2 of the target, noise
     * and all, where who knows would be within the target; where even who knows is over it (the
     * floor, the least share), those over 1.2 of that one's step, without noise. */
    uint32_t n_gaps, n_late, n_late_at_floor;
    uint32_t n_prompts;      /* that are done, or late already; but for the first few */
    double took_ns, best_ns; /* sums over them: here, and of who knows */
    uint32_t n_long;
    double ratios[BUDGET_RUN_STEPS]; /* took / best of those of BUDGET_LONG_STEPS or more at best */
};

/* The time that prompts may take beside decodes of decodes_ns: the rule of
 * head/budget/step_budget.h. */
double budget_rule_prompt_ns(double decodes_ns);
void budget_run(const struct budget_curve *c, uint64_t seed, struct budget_report *out);
