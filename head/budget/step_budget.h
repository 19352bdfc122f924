#pragma once
/* Computes how many prompt tokens the next step of a replica may run so that the step takes at
 * most a given time. A replica on CPUs needs this limit, because a step of 8192 tokens would
 * take ten seconds there. In that time no other stream gets a token and no request can be
 * cancelled. The estimate uses the execution times in the results (`execute_ns`), so the code
 * needs no clock. The same results lead to the same budget in the simulator, in cox-head and in
 * a replay of its log. The code allocates nothing and takes a few hundred nanoseconds per
 * result. One scheduler owns the data.
 *
 * Model: time(step) = pass + sampled * n_sampled + token * n_prompt. A row that needs logits
 * counts as sampled: the last row of a run that samples, and all rows of a prompt with
 * prompt_logprobs. The other rows count as prompt tokens. All three costs are learnt from every
 * step (docs/develop/scheduler.md, "What a step costs"). */
#include <stdint.h>

struct step_budget {
    uint64_t target_ns; /* longest time of a step, ns; 0 = no limit */
    uint32_t cap;       /* most prompt tokens of a step; one result can at most double this limit */
    uint32_t n_results;
    /* `pass_ns`, `sampled_ns` and `token_ns` are the costs of a pass, a sampled row and a prompt
     * token. A `token_ns` of 0 means unknown. */
    double pass_ns, sampled_ns, token_ns;
    double unsure[3][3]; /* covariance of the estimates of the three costs, ns^2 */
    double scatter2;     /* variance of (step time / expected time) */
    int32_t surprises;   /* consecutive results far above (> 0) or below (< 0) the expected time */
};

/* Counts the rows of one step: sampled rows, other rows, and rows of prompts with
 * prompt_logprobs. The last kind has logits and costs as much as sampled rows. */
struct step_load {
    uint32_t n_sampled, n_prompt, n_prompt_logprobs;
};

#define STEP_BUDGET_FLOOR 8u /* prompt tokens that a step may always have */

void step_budget_init(struct step_budget *b, uint64_t target_ns);
/* Returns the prompt tokens that fit beside n_sampled decodes, at least STEP_BUDGET_FLOOR, so
 * that no prompt starves. Prompts get the part of the target that the decodes leave, and at
 * least a quarter of the step. They get more as the decodes alone exceed the target. Returns
 * UINT32_MAX when there is no target. */
uint32_t step_budget_prompt_tokens(const struct step_budget *b, uint32_t n_sampled);
/* Like step_budget_prompt_tokens, but the whole step takes at most longest_ns (row_shares.h).
 * The result is still at least STEP_BUDGET_FLOOR. */
uint32_t step_budget_prompt_tokens_within(const struct step_budget *b, uint32_t n_sampled,
                                          uint64_t longest_ns);
/* Returns the prompt tokens for streams that resume after a loss and produce nothing until then.
 * They may take four fifths of the step whatever the target, since a stream that waits is worse
 * off than a slow one. That number is kept between 128 and 512 tokens, and is 512 when nothing
 * decodes. The result is never below step_budget_prompt_tokens. On a slow machine a recovery is
 * therefore slower in proportion. */
uint32_t step_budget_resumed_tokens(const struct step_budget *b, uint32_t n_sampled);
/* Returns how many more prompt tokens a row with logits costs than a plain one. The last row of
 * a prompt, and each row of a prompt with prompt_logprobs, takes this much of the budget beside
 * its own token. Returns 0 without a target, or while the costs are unknown. */
double step_budget_tokens_of_sampled(const struct step_budget *b);
/* Returns the standard deviation of a decode's estimated cost, relative to that cost. It stays
 * high when all steps have equally many decodes. */
double step_budget_unsure_of_sampled(const struct step_budget *b);
/* Updates the costs from a step with this load that took execute_ns. A time of 0 (the device
 * reports none) is ignored. */
void step_budget_on_result(struct step_budget *b, struct step_load load, uint64_t execute_ns);
