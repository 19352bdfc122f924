#pragma once
/* How many prompt tokens the next step of a group may run so that the step takes at most a given
 * time. A group on CPUs needs it: a step of 8192 tokens would take ten seconds, in which no other
 * stream gets a token and nothing can be cancelled. The estimate comes from the results' own times
 * (`execute_ns`), so the budget needs no clock: it is the same function of the same results in the
 * simulator and in cox-head. Pure data, no allocation; owned by one scheduler.
 *
 * Model: time(step) = drawn(n_drawn) + n_prompt * token_ns, where a run that samples counts one of
 * its rows as drawn (the rows that need logits) and the others as prompt tokens. Both parts follow
 * the results by moving averages; one outlier moves neither by more than a factor. */
#include <stdint.h>

struct step_budget {
    uint64_t target_ns;          /* 0: no limit */
    uint32_t cap;                /* prompt tokens a step may have: at most doubles with a result */
    double drawn_ns, drawn_rows; /* means over the steps without prompt tokens; 0: none yet */
    double token_ns;             /* of one prompt token; 0: none yet */
};

/* What one step runs: n_drawn rows whose logits are wanted, n_prompt other rows. */
struct step_load {
    uint32_t n_drawn, n_prompt;
};

void step_budget_init(struct step_budget *b, uint64_t target_ns);
/* The prompt tokens that fit beside n_drawn decodes: never 0, so that no prompt starves. A quarter
 * of the time is theirs even when the decodes alone take all of it. UINT32_MAX without a target. */
uint32_t step_budget_prompt_tokens(const struct step_budget *b, uint32_t n_drawn);
/* The same for prompts of streams that came back after a loss and stand still meanwhile: four
 * fifths of the step are theirs, whatever the target, since a stream that waits for its turn is
 * worse off than one that is slow; 128 tokens at least, 512 where nobody decodes. So a recovery
 * takes as much longer on a slow machine as everything there does. */
uint32_t step_budget_resumed_tokens(const struct step_budget *b, uint32_t n_drawn);
/* A step with this load took execute_ns; 0 (a device that does not say) is ignored. */
void step_budget_on_result(struct step_budget *b, struct step_load load, uint64_t execute_ns);
