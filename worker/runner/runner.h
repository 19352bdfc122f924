#pragma once
/* Executes a program on a device for rows of tokens. Knows nothing of plans, sequences or sampling.
 * All memory is allocated at runner_new; one thread. logits.h has what may be asked of a pass
 * behind it, record.h the passes that a device records and replays. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

/* STATUS_UNSUPPORTED: the device's operators would refuse such shapes in every pass. */
MUST_USE enum status runner_check(const struct program *p, const struct device *d,
                                  uint32_t pass_rows, struct error *err);
/* Bytes that runner_new will allocate: from the shapes alone. */
uint64_t runner_measure(const struct program *p, const struct device *d, uint32_t pass_rows);

struct runner;
MUST_USE enum status runner_new(const struct runner_setup *s, struct runner **out,
                                struct error *err);
void runner_free(struct runner *r); /* NULL is fine */
/* The rows' hidden states, kept until the next call: the same bits on every rank of a stage. On a
 * GPU this only enqueues, and what fails there is told by what waits (runner_read_logits). They
 * come from the stage before and go to the one behind, which may not have taken all of them when
 * this returns. STATUS_CLOSED: interrupted. With several ranks also what the collectives say, and
 * STATUS_INVALID when they are not joined as the program's rank. */
MUST_USE enum status runner_forward(struct runner *r, const struct row_batch *b, struct error *err);
/* The hidden states of the last forward, before the final norm: [n_rows][hidden] of the device; of
 * a pass that says which ones are kept, nobody's. */
struct view runner_hidden(const struct runner *r);
