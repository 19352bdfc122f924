#pragma once
/* Computes the prompt_logprobs of a step. */
#include "worker/executor/state.h"

/* Returns the number of entries of a row: the prompt's id, then the best ids. */
uint32_t prompt_logprob_places(const struct sampling_params *p, uint32_t vocab_size);
/* Counts the rows of prompt_logprobs in the step's runs. On the sampling rank it also allocates
 * them on the step's arena. */
MUST_USE enum status step_prompt_logprobs_init(const struct executor_model *x,
                                               struct step_in_flight *s, struct sequence_runs runs,
                                               struct error *err);
/* Computes the rows of x->batch on the host. Call it on every rank of the last stage. Errors are
 * those of runner_logits and runner_look. */
MUST_USE enum status executor_prompt_logprobs_pass(struct executor_model *x,
                                                   struct step_in_flight *s, struct error *err);
/* Merges the sampled items (runs with `sample`, in order) into c->items. */
void step_prompt_logprobs_put_items(struct step_prompt_logprobs *c,
                                    const struct result_item *sampled);
