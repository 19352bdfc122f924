#pragma once
/* What a device that samples has to do with an executor's steps: of an executor with
 * x->device_sampler. */
#include "worker/executor/state.h"

MUST_USE enum status executor_device_sampler_open(struct executor_model *x, struct error *err);
struct gpu_sampler_options executor_device_sampler_options(const struct device *d,
                                                           uint32_t vocab_size);
void executor_device_sampler_close(struct executor_model *x); /* NULL is fine */
/* Can the device sample all of it? What it can not the host does. */
bool executor_device_can_sample(const struct executor_model *x, struct sequence_runs runs);
/* Does a run need ids that the device alone knows (bad words of several)? */
bool executor_needs_ids(struct sequence_runs runs);
/* The rows of x->batch, enqueued: places sampled->n_done and on of the step. */
MUST_USE enum status executor_device_sample_pass(struct executor_model *x,
                                                 const struct step_in_flight *s,
                                                 struct sampled *sampled, struct error *err);
/* Its rows of prompt_logprobs: the places behind sampled's. */
MUST_USE enum status executor_device_prompt_logprobs_pass(struct executor_model *x,
                                                          struct step_in_flight *s,
                                                          struct error *err);
/* What came back of those, into s->prompt_logprobs. */
void executor_take_prompt_logprobs(const struct executor_model *x, struct step_in_flight *s);
/* What came back of places at .. at + n, into s->sampled. */
MUST_USE enum status executor_take_sampled(struct executor_model *x, struct step_in_flight *s,
                                           uint32_t at, bool logprobs, struct error *err);
/* Rows of x->batch whose ids the device knows alone. */
void executor_mark_pending(struct executor_model *x);
