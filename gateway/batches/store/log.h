#pragma once
/* Handles SQLite's write-ahead log: how a transaction ends, and when the log is cut. */
#include "gateway/batches/store/state.h"

/* Commits the transaction, or rolls back when `so_far` is an error. Returns the first error. */
enum status state_end(struct state_store *s, enum status so_far, struct error *err);
/* Moves the log into the database and cuts it to zero length. */
enum status state_checkpoint(struct state_store *s);
