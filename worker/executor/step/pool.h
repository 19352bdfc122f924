#pragma once
/* Computes the vectors of pooling requests from their prompts' hidden states. */
#include "worker/executor/state.h"

/* Adds each row of a pooling request in the pass to its sequence's `pooled` sum, on the sampling
 * rank. Finished vectors are on the arena. */
MUST_USE enum status executor_pool_pass(struct executor_model *x, struct arena *arena,
                                        struct error *err);
