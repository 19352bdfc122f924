#pragma once
/* Keeps open handles of files' contents. */
#include "gateway/batches/store/state.h"

/* Returns the handle of a file's content by its row. Returns NULL with the reason in `err` on
 * failure. The handle is valid until the next call that closes handles. */
struct open_blob *state_blob(struct state_store *s, int64_t no, struct error *err);
void state_close_blob(struct open_blob *b);
/* closes the open handles of all files; call it before each write and before the log is cut */
void state_close_blobs(struct state_store *s);
