#pragma once
/* Draft tokens, before a step's passes. */
#include "worker/executor/state.h"

/* Draft tokens behind the runs of p, the plan that was applied, on all ranks the same. The arena is
 * the step's. Errors as runner_forward and comm_broadcast have them; STATUS_NO_MEMORY. */
MUST_USE enum status executor_propose(struct executor_model *x, const struct msg_plan *p,
                                      struct sequence_runs runs, struct arena *arena,
                                      struct error *err);
