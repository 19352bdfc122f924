#pragma once
/* LoRA adapters of this rank: as executor_ops has adapter and lost_adapter, and in plans. */
#include "worker/executor/state.h"

MUST_USE enum status executor_adapter(struct executor *e, struct msg_adapter *m, struct error *err);
bool executor_lost_adapter(struct executor *e, uint64_t *id, struct error *why);
/* Plans name slots and adapters; nothing is executed of one that names what is not here. */
MUST_USE enum status executor_check_adapters(const struct executor_model *x,
                                             const struct msg_plan *p, struct error *err);
void executor_take_adapters(struct executor_model *x, const struct msg_plan *p);
