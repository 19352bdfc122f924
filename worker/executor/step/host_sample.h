#pragma once
/* Samples the rows of a pass on the host. */
#include "worker/executor/state.h"

/* Samples the rows of x->batch, on every rank of the last stage. Only the sampling rank writes
 * ids. */
MUST_USE enum status executor_sample_pass(struct executor_model *x, struct arena *arena,
                                          struct sampled *sampled, struct error *err);
