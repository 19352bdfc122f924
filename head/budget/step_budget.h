#pragma once
/* How many prompt tokens the next step of a replica may run so that the step takes at most a given
 * time. A replica on CPUs needs it: a step of 8192 tokens would take ten seconds, in which no other
 * stream gets a token and nothing can be cancelled. The estimate comes from the results' own times
 * (`execute_ns`), so the budget needs no clock: it is the same function of the same results in the
 * simulator, in cox-head and in a replay of its log. Pure data, no allocation, a few hundred
 * nanoseconds per result; owned by one scheduler.
 *
 * Model: time(step) = pass + sampled * n_sampled + token * n_prompt, where a row that needs logits
 * (the last one of a run that samples, and all of a prompt with prompt_logprobs) counts as sampled
 * and the others as prompt tokens. All three costs are learnt from every step
 * (docs/develop/scheduler.md, "What a step costs"). */
#include <stdint.h>

struct step_budget {
    uint64_t target_ns; /* 0: no limit */
    uint32_t cap;       /* prompt tokens a step may have: at most doubles with a result */
    uint32_t n_results;
    double pass_ns, sampled_ns, token_ns; /* token_ns 0: nothing is known yet */
    double unsure[3][3];                  /* covariance of the three, in ns^2 */
    double scatter2;   /* variance of a step's time / what it was expected to be */
    int32_t surprises; /* results in a row far above (> 0) or below what they may be */
};

/* The rows of one step: those that are sampled from, other rows, and rows of prompts whose
 * log-probabilities are wanted, which have logits and cost as much as sampled ones. */
struct step_load {
    uint32_t n_sampled, n_prompt, n_prompt_logprobs;
};

#define STEP_BUDGET_FLOOR 8u /* prompt tokens that a step may have whatever is believed */

void step_budget_init(struct step_budget *b, uint64_t target_ns);
/* The prompt tokens that fit beside n_sampled decodes, STEP_BUDGET_FLOOR at least, so that no
 * prompt starves. The prompts' part of the step is what the decodes leave of the target; a quarter
 * of the step at least, and more the further decodes alone exceed the target. UINT32_MAX without
 * one. */
uint32_t step_budget_prompt_tokens(const struct step_budget *b, uint32_t n_sampled);
/* The same, and no more than what the decodes leave of longest_ns, which is a bound of another kind
 * (row_shares.h): the decodes are fewer where they would leave nothing of that. */
uint32_t step_budget_prompt_tokens_within(const struct step_budget *b, uint32_t n_sampled,
                                          uint64_t longest_ns);
/* The same for prompts of streams that came back after a loss and stand still meanwhile: four
 * fifths of the step are theirs, whatever the target, since a stream that waits for its turn is
 * worse off than one that is slow; 128 tokens at least, 512 where nobody decodes. So a recovery
 * takes as much longer on a slow machine as everything there does. */
uint32_t step_budget_resumed_tokens(const struct step_budget *b, uint32_t n_sampled);
/* A row with logits costs so many prompt tokens more than one: what a prompt's last row, and each
 * one of a prompt with prompt_logprobs, takes of the budget beside its own token. 0 without a
 * target, and where nothing is known. */
double step_budget_tokens_of_sampled(const struct step_budget *b);
/* Standard deviation of what a decode is believed to cost, as a part of it: steps that all have
 * equally many do not tell what one of them costs. */
double step_budget_unsure_of_sampled(const struct step_budget *b);
/* A step with this load took execute_ns; 0 (a device that does not say) is ignored. */
void step_budget_on_result(struct step_budget *b, struct step_load load, uint64_t execute_ns);
