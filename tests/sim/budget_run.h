#pragma once
/* Runs the step budget over one curve, with two steps in flight. Beside it runs a policy that
 * knows the curve and follows the same rules (target, the prompts' least share, floor). The
 * budget gets times with noise. The prompts' times are counted without it, for both. */
#include "tests/sim/budget_curve.h"

enum { BUDGET_RUN_STEPS = 1500, BUDGET_LONG_STEPS = 5 };

struct budget_report {
    /* n_gaps counts steps with decodes, without the five after each jump. n_late counts gaps
     * over 1.2 times the target, with noise, where the knowing policy would be within the
     * target. n_late_at_floor counts steps over 1.2 times the knowing policy's step, without
     * noise, where that policy is over the target too (floor, least share). */
    uint32_t n_gaps, n_late, n_late_at_floor;
    uint32_t n_prompts; /* prompts that are done or already late, without the first few */
    /* sums over these prompts: took_ns of the budget, best_ns of the knowing policy */
    double took_ns, best_ns;
    uint32_t n_long;
    /* `ratios` has took / best for prompts of at least BUDGET_LONG_STEPS steps at best. */
    double ratios[BUDGET_RUN_STEPS];
};

/* Returns the time that prompts may take beside decodes of decodes_ns, by the rule of
 * head/budget/step_budget.h. */
double budget_rule_prompt_ns(double decodes_ns);
void budget_run(const struct budget_curve *c, uint64_t seed, struct budget_report *out);
