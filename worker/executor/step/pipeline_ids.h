#pragma once
/* Moves sampled ids from the last stage to the earlier stages. */
#include "worker/executor/state.h"

/* Appends to each sequence of the pass its sampled id on the last stage, or an empty place for
 * the id on an earlier stage. Call it after a pass. */
MUST_USE enum status executor_end_pass(struct executor_model *x, struct sampled *sampled,
                                       struct error *err);
/* Waits for the ids of the pass's rows, and until the ids that the pass will sample fit into the
 * ring. Call it before a pass. */
MUST_USE enum status executor_find_pending(struct executor_model *x, struct error *err);
/* Waits for all sampled ids when a sequence leaves with a pending id, or when the plan is full.
 * Call it before the plan `p` is checked and applied. */
MUST_USE enum status executor_resolve_ids_for(struct executor_model *x, const struct msg_plan *p,
                                              struct error *err);
/* Waits for all ids that the last stage has still to send. */
MUST_USE enum status executor_resolve_ids(struct executor_model *x, struct error *err);
void executor_ahead_drop(struct executor_model *x); /* forgets pending ids, which will not arrive */
