#pragma once
/* Ids that were drawn become part of the sequences, and of the result. */
#include "worker/executor/state.h"

/* Room for runs' draws, on the arena. */
MUST_USE enum status drawn_init(struct drawn *d, struct sequence_runs runs, struct arena *arena,
                                struct error *err);
/* After the last pass, on all ranks: what was drawn counts as far as draft tokens were right. */
MUST_USE enum status executor_append_drawn(struct executor_model *x, struct sequence_runs runs,
                                           struct drawn *drawn, struct error *err);
/* An id that came from the drawing rank. */
MUST_USE enum status executor_append_id(struct executor_model *x, struct sequence *q, uint32_t id,
                                        struct error *err);
/* The drawing rank's items, when all ids are appended. */
void executor_put_items(struct drawn *drawn, struct sequence_runs runs);
