#pragma once
/* Records and replays passes on a device (docs/develop/gpu.md, "Recorded passes"). All functions
 * run on the compute thread. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

struct runner;
/* Returns true when the device has refused to record or replay a pass. With several ranks the
 * step then fails, because NCCL requires a collective to be in a graph on all of its ranks or on
 * none. Returns false when `r` is NULL. */
bool runner_refused_record(const struct runner *r);
/* Turns padding and recording off or on for later passes. All ranks of a replica must use the
 * same value. */
void runner_set_eager(struct runner *r, bool is_eager);
/* Drops all recordings, because the communicator has changed. Does nothing when `r` is NULL. */
void runner_drop_records(struct runner *r);
/* Returns the padded number of rows for a recording of n sampled rows. The caller may pad with
 * any rows of the pass. 0 = n rows are not recorded. */
uint32_t runner_sample_rows(const struct runner *r, uint32_t n);

/* ---- for the runner ---- */

#define RUNNER_RECORD_ROWS 256u /* largest recorded pass */
void runner_make_padding(struct runner *r);
void runner_free_padding(struct runner *r);
/* Returns `b`, or a padded copy that can be recorded. *key is the key of the recording; 0 = do
 * not record. The key is the same on all ranks. */
const struct row_batch *runner_pad(struct runner *r, const struct row_batch *b, uint64_t *key);
/* Returns the key of a recording of logits and samples of n rows; `key` identifies the caller's
 * own work. 0 = do not record. */
uint64_t runner_sample_key(const struct runner *r, uint32_t n, uint64_t key);
/* `runner_piece` is work that is enqueued at once: replayed from the recording with this key, or
 * operator by operator. */
struct runner_piece {
    uint64_t key; /* key of the recording; 0 = do not record */
    bool of_rows; /* the work uses rows of a pass; see ops->recording.begin */
    enum status (*run)(struct runner *r, const void *ctx, struct error *err);
    const void *ctx;
};
MUST_USE enum status runner_run_piece(struct runner *r, const struct runner_piece *p,
                                      struct error *err);
