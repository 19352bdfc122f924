#pragma once
/* The prompt_logprobs of a step. */
#include "worker/executor/state.h"

/* Entries of a row: the prompt's id, then the best. */
uint32_t prompt_logprob_places(const struct sampling_params *p, uint32_t vocab_size);
/* The prompt_logprobs of a step's runs, and on the sampling rank room for it on the step's arena.
 */
MUST_USE enum status step_prompt_logprobs_init(const struct executor_model *x,
                                               struct step_in_flight *s, struct sequence_runs runs,
                                               struct error *err);
/* The rows of x->batch, by the host: on every rank of the last stage. Errors as runner_logits and
 * runner_look have them. */
MUST_USE enum status executor_prompt_logprobs_pass(struct executor_model *x,
                                                   struct step_in_flight *s, struct error *err);
/* c->items get what was sampled: the items of the runs with `sample`, in order. */
void step_prompt_logprobs_put_items(struct step_prompt_logprobs *c,
                                    const struct result_item *sampled);
