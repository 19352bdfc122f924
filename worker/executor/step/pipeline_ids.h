#pragma once
/* Sampled ids on their way from the last stage to the earlier ones. */
#include "worker/executor/state.h"

/* Call it after a pass: the last stage appends the sampled ids, an earlier stage an empty place
 * for each. */
MUST_USE enum status executor_end_pass(struct executor_model *x, struct sampled *sampled,
                                       struct error *err);
/* Call it before a pass: waits for the ids of its rows. */
MUST_USE enum status executor_find_pending(struct executor_model *x, struct error *err);
/* Call it before the plan `p` is checked and applied: when a sequence leaves with a pending id,
 * it waits for all ids. */
MUST_USE enum status executor_resolve_ids_for(struct executor_model *x, const struct msg_plan *p,
                                              struct error *err);
/* Waits for all ids. */
MUST_USE enum status executor_resolve_ids(struct executor_model *x, struct error *err);
void executor_ahead_drop(struct executor_model *x); /* forgets pending ids, which will not arrive */
