#pragma once
/* What a device that draws has to do with an executor's steps: of an executor with x->draws. */
#include "worker/executor/state.h"

MUST_USE enum status executor_draws_open(struct executor_model *x, struct error *err);
struct gpu_draws_options executor_draws_options(const struct device *d, uint32_t vocab_size);
void executor_draws_close(struct executor_model *x); /* NULL is fine */
/* Can the device draw all of it? What it can not the host does. */
bool executor_can_draw(const struct executor_model *x, struct sequence_runs runs);
/* Does a run need ids that the device alone knows (bad words of several)? */
bool executor_needs_ids(struct sequence_runs runs);
/* The rows of x->batch, enqueued: places drawn->n_done and on of the step. */
MUST_USE enum status executor_draw_pass(struct executor_model *x, const struct step_in_flight *s,
                                        struct drawn *drawn, struct error *err);
/* Its rows that are scored: the places behind drawn's. */
MUST_USE enum status executor_draw_scores(struct executor_model *x, struct step_in_flight *s,
                                          struct error *err);
/* What came back of those, into s->scored. */
void executor_take_scores(const struct executor_model *x, struct step_in_flight *s);
/* What came back of places at .. at + n, into s->drawn. */
MUST_USE enum status executor_take_drawn(struct executor_model *x, struct step_in_flight *s,
                                         uint32_t at, bool logprobs, struct error *err);
/* Rows of x->batch whose ids the device knows alone. */
void executor_mark_pending(struct executor_model *x);
