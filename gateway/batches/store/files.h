#pragma once
/* Rows of files, for batches. */
#include "gateway/batches/store/state.h"

/* Finds a tenant's file by its id: its row and size. Returns STATUS_NOT_FOUND when there is
 * none. */
enum status state_find_file(struct state_store *s, uint64_t tenant, struct str id, int64_t *no,
                            uint64_t *bytes, struct error *err);
/* Must run within a transaction. When `content.ptr` is NULL, that many zeros are stored, to be
 * overwritten later. */
enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err);
