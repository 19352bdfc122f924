#pragma once
/* Samples on the device, for an executor with x->device_sampler. */
#include "worker/executor/state.h"

MUST_USE enum status executor_device_sampler_open(struct executor_model *x, struct error *err);
struct gpu_sampler_options executor_device_sampler_options(const struct device *d,
                                                           uint32_t vocab_size);
void executor_device_sampler_close(struct executor_model *x); /* does nothing without a sampler */
/* Returns true when the device can sample all runs. Otherwise the host samples the step. */
bool executor_device_can_sample(const struct executor_model *x, struct sequence_runs runs);
/* Returns true when sampling a run needs known ids, and only the device has the newest ones (bad
 * words of several ids). */
bool executor_needs_ids(struct sequence_runs runs);
/* Enqueues the sampling of the rows of x->batch. The results are written to the step's places
 * from sampled->n_done on. */
MUST_USE enum status executor_device_sample_pass(struct executor_model *x,
                                                 const struct step_in_flight *s,
                                                 struct sampled *sampled, struct error *err);
/* Enqueues the rows of prompt_logprobs. The results are written to the places after those of
 * `sampled`. */
MUST_USE enum status executor_device_prompt_logprobs_pass(struct executor_model *x,
                                                          struct step_in_flight *s,
                                                          struct error *err);
/* Copies the device's results for the prompt's rows to s->prompt_logprobs. */
void executor_take_prompt_logprobs(const struct executor_model *x, struct step_in_flight *s);
/* Copies the result of place `at` to s->sampled. */
MUST_USE enum status executor_take_sampled(struct executor_model *x, struct step_in_flight *s,
                                           uint32_t at, bool logprobs, struct error *err);
/* Marks the rows of x->batch whose ids only the device knows. */
void executor_mark_pending(struct executor_model *x);
