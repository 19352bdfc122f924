#pragma once
/* Ids that were sampled become part of the sequences, and of the result. */
#include "worker/executor/state.h"

/* Room for runs' samples, on the arena. */
MUST_USE enum status sampled_init(struct sampled *d, struct sequence_runs runs, struct arena *arena,
                                  struct error *err);
/* After the last pass, on all ranks: what was sampled counts as far as draft tokens were right. */
MUST_USE enum status executor_append_sampled(struct executor_model *x, struct sequence_runs runs,
                                             struct sampled *sampled, struct error *err);
/* An id that came from the sampling rank. */
MUST_USE enum status executor_append_id(struct executor_model *x, struct sequence *q, uint32_t id,
                                        struct error *err);
/* The sampling rank's items, when all ids are appended. */
void executor_put_items(struct sampled *sampled, struct sequence_runs runs);
