#pragma once
/* Declares the functions on rows of files that batches need. */
#include "gateway/batches/store/state.h"

/* Finds the row and the size of a tenant's file by its id. Returns STATUS_NOT_FOUND when the
 * tenant has no such file. */
enum status state_find_file(struct state_store *s, uint64_t tenant, struct str id, int64_t *no,
                            uint64_t *bytes, struct error *err);
/* Inserts a file. The call must be within a transaction. When `content.ptr` is NULL,
 * `content.len` zeros are stored, to be overwritten later. */
enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err);
