#pragma once
/* Executes the step of executor_ops, in one call or as `begin` and `finish`. */
#include "worker/executor/state.h"

MUST_USE enum status executor_begin(struct executor *e, const struct msg_plan *p,
                                    struct arena *arena, struct error *err);
bool executor_is_due(struct executor *e);
MUST_USE enum status executor_finish(struct executor *e, struct msg_result *out, struct error *err);
MUST_USE enum status executor_step(struct executor *e, const struct msg_plan *p,
                                   struct arena *arena, struct msg_result *out, struct error *err);
void executor_drop_steps(struct executor_model *x); /* drops all steps in flight without results */
