#pragma once
/* Handles the LoRA adapters of this rank: `adapter` and `lost_adapter` of executor_ops, and
 * adapters in plans. */
#include "worker/executor/state.h"

MUST_USE enum status executor_adapter(struct executor *e, struct msg_adapter *m, struct error *err);
bool executor_lost_adapter(struct executor *e, uint64_t *id, struct error *why);
/* Checks the adapters of the sequences that the plan admits. The whole plan is refused when one
 * of them is not loaded. */
MUST_USE enum status executor_check_adapters(const struct executor_model *x,
                                             const struct msg_plan *p, struct error *err);
void executor_take_adapters(struct executor_model *x, const struct msg_plan *p);
