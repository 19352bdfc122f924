#pragma once
/* Appends sampled ids to the sequences and puts them into the result. */
#include "worker/executor/state.h"

/* Allocates memory for the samples of `runs` on the arena. */
MUST_USE enum status sampled_init(struct sampled *d, struct sequence_runs runs, struct arena *arena,
                                  struct error *err);
/* Appends the sampled ids to the sequences, as far as the draft tokens were accepted. Call it
 * after the last pass, on all ranks. */
MUST_USE enum status executor_append_sampled(struct executor_model *x, struct sequence_runs runs,
                                             struct sampled *sampled, struct error *err);
/* Appends to the sequence an id that the sampling rank has sent. */
MUST_USE enum status executor_append_id(struct executor_model *x, struct sequence *q, uint32_t id,
                                        struct error *err);
/* Fills the result's items on the sampling rank after all ids are appended. */
void executor_put_items(struct sampled *sampled, struct sequence_runs runs);
