#pragma once
/* Makes draft tokens before the passes of a step. */
#include "worker/executor/state.h"

/* Makes the draft tokens of `runs`, the same on all ranks. `p` is the applied plan, and the
 * arena is the step's. Errors are those of runner_forward and comm_broadcast, and
 * STATUS_NO_MEMORY. */
MUST_USE enum status executor_propose(struct executor_model *x, const struct msg_plan *p,
                                      struct sequence_runs runs, struct arena *arena,
                                      struct error *err);
