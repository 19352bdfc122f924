#pragma once
/* Open handles of files' contents. */
#include "gateway/batches/store/state.h"

/* Returns the handle of a file's content by its row; NULL = `err` has the reason. Valid until
 * the next call that closes handles. */
struct open_blob *state_blob(struct state_store *s, int64_t no, struct error *err);
void state_close_blob(struct open_blob *b);
/* call it before each write and before the log is cut */
void state_close_blobs(struct state_store *s);
