#pragma once
/* Passes that a device records and replays (docs/develop/gpu.md, "Recorded passes"). Compute
 * thread. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

struct runner;
/* Has the device refused to record or to replay a pass? Of several ranks the step fails then: NCCL
 * wants a collective to be of a graph on all of its ranks or on none. NULL: no. */
bool runner_refused_record(const struct runner *r);
/* Whether passes are neither padded nor recorded from now on: for all ranks of a replica alike. */
void runner_set_eager(struct runner *r, bool is_eager);
/* Recorded passes are not to be replayed any more: the communicator is another one. NULL
 * is fine. */
void runner_drop_records(struct runner *r);
/* How many n rows are to be, with any rows of the pass behind them; 0: n rows are not recorded. */
uint32_t runner_sample_rows(const struct runner *r, uint32_t n);

/* ---- for the runner ---- */

#define RUNNER_RECORD_ROWS 256u /* of a recorded pass at most */
void runner_make_padding(struct runner *r);
void runner_free_padding(struct runner *r);
/* b, or what is recorded in its place; *key: of the record, 0: it is not to be recorded. The same
 * on all ranks. */
const struct row_batch *runner_pad(struct runner *r, const struct row_batch *b, uint64_t *key);
/* The key of logits and samples of n rows, of the caller's own for what it samples; 0: as above. */
uint64_t runner_sample_key(const struct runner *r, uint32_t n, uint64_t key);
/* A piece of work that is enqueued in one go: as it was recorded under the key, or operator by
 * operator. */
struct runner_piece {
    uint64_t key; /* 0: it is not to be recorded */
    bool of_rows; /* as ops->recording.begin has it */
    enum status (*run)(struct runner *r, const void *ctx, struct error *err);
    const void *ctx;
};
MUST_USE enum status runner_run_piece(struct runner *r, const struct runner_piece *p,
                                      struct error *err);
