#pragma once
/* Runs the operators of a program over the rows of a pass. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

struct runner;
/* Runs the step that begins at operator *i_op over the rows of a pass, and advances *i_op past
 * it. */
MUST_USE enum status runner_run_step(struct runner *r, uint32_t *i_op, const struct row_batch *b,
                                     struct error *err);
/* Sums the contiguous rows of `reg` over the ranks. */
MUST_USE enum status runner_add_ranks(struct runner *r, enum reg reg, struct error *err);
