#pragma once
/* Open handles of files' contents. */
#include "gateway/batches/store/state.h"

/* The file's content by its row; NULL: err says why. Good until the next call that closes. */
struct open_blob *state_blob(struct state_store *s, int64_t no, struct error *err);
void state_close_blob(struct open_blob *b);
void state_close_blobs(struct state_store *s); /* before whatever writes, or cuts the log */
