#pragma once
/* Rows of files, for batches. */
#include "gateway/batches/store/state.h"

/* A tenant's file by its id: its row and size; STATUS_NOT_FOUND. */
enum status state_find_file(struct state_store *s, uint64_t tenant, struct str id, int64_t *no,
                            uint64_t *bytes, struct error *err);
/* Inside a transaction. content.ptr NULL: that many zeros, to be written over. */
enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err);
