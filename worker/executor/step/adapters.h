#pragma once
/* Handles the LoRA adapters of this rank: `adapter` and `lost_adapter` of executor_ops, and
 * adapters in plans. */
#include "worker/executor/state.h"

MUST_USE enum status executor_adapter(struct executor *e, struct msg_adapter *m, struct error *err);
bool executor_lost_adapter(struct executor *e, uint64_t *id, struct error *why);
/* Checks the slots and adapters that the plan names. The whole plan is refused when it names an
 * adapter that is not loaded. */
MUST_USE enum status executor_check_adapters(const struct executor_model *x,
                                             const struct msg_plan *p, struct error *err);
void executor_take_adapters(struct executor_model *x, const struct msg_plan *p);
