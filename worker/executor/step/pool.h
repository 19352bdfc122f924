#pragma once
/* Makes vectors of prompts. */
#include "worker/executor/state.h"

/* Adds the pass's rows of pooling requests, on the sampling rank. Finished vectors are on the
 * arena. */
MUST_USE enum status executor_pool_pass(struct executor_model *x, struct arena *arena,
                                        struct error *err);
