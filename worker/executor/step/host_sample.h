#pragma once
/* Tokens sampled on the host. */
#include "worker/executor/state.h"

/* Adds the tokens of x->batch's sampled rows, on every rank of the last stage; others' ids stay. */
MUST_USE enum status executor_sample_pass(struct executor_model *x, struct arena *arena,
                                          struct sampled *sampled, struct error *err);
