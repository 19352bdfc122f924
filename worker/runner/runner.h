#pragma once
/* Runs a program on a device over rows of tokens. The runner does not use plans, sequences or
 * sampling. runner_new allocates all memory. One thread uses a runner. logits.h reads the
 * results of the last pass, and record.h records passes. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

/* Checks the shapes of the program. STATUS_UNSUPPORTED: the device's operators would refuse them
 * in every pass. */
MUST_USE enum status runner_check(const struct program *p, const struct device *d,
                                  uint32_t pass_rows, struct error *err);
/* Returns the bytes that runner_new will allocate, from the shapes alone. */
uint64_t runner_measure(const struct program *p, const struct device *d, uint32_t pass_rows);

struct runner;
MUST_USE enum status runner_new(const struct runner_setup *s, struct runner **out,
                                struct error *err);
void runner_free(struct runner *r); /* `r` may be NULL */
/* Computes the rows' hidden states, which stay valid until the next call and have the same bits
 * on every rank of a stage. On a GPU the call only enqueues. A later call that waits
 * (runner_read_logits) reports errors. Hidden states come from the previous stage and are sent
 * to the next stage, which may not have received all of them when this call returns.
 * STATUS_CLOSED: the pass was interrupted. With several ranks the errors of the collectives are
 * returned too, and STATUS_INVALID when they are not joined as the program's rank. */
MUST_USE enum status runner_forward(struct runner *r, const struct row_batch *b, struct error *err);
/* Returns the hidden states of the last forward before the final norm: [n_rows][hidden] in
 * device memory. The result is not defined after a pass with `kept`. */
struct view runner_hidden(const struct runner *r);
