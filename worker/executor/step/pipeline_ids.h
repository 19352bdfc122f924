#pragma once
/* Ids on their way from the last stage to those in front of it. */
#include "worker/executor/state.h"

/* Behind a pass: the last stage appends what was sampled, the others a place for it. */
MUST_USE enum status executor_end_pass(struct executor_model *x, struct sampled *sampled,
                                       struct error *err);
/* Before a pass: waits for the ids of its rows. */
MUST_USE enum status executor_find_pending(struct executor_model *x, struct error *err);
/* Before p, which has not been checked, is applied: sequences that leave wait for nothing. */
MUST_USE enum status executor_resolve_ids_for(struct executor_model *x, const struct msg_plan *p,
                                              struct error *err);
/* Waits for all ids. */
MUST_USE enum status executor_resolve_ids(struct executor_model *x, struct error *err);
void executor_ahead_drop(struct executor_model *x); /* they will not come any more */
