#pragma once
/* Removes the content of deleted files piece by piece. */
#include "gateway/batches/store/state.h"

/* `STATE_NOT_GONE` is the end of a WHERE clause on `file`. A statement with this condition does
 * not see deleted files. */
#define STATE_NOT_GONE " AND file.no NOT IN (SELECT no FROM gone)"

/* Hides the file with this number. Its content is removed piece by piece. */
enum status state_hide_file(struct state_store *s, int64_t no, struct error *err);
/* Removes one piece of a hidden file. Returns false when there is no piece, or when it cannot be
 * removed now. */
bool state_sweep(struct state_store *s);
/* Frees some space after a write failed with status `so`. Returns true when space was freed.
 * Usually the call writes no zeros over deleted data. After STATUS_DENIED (a tenant's share) it
 * writes zeros, because the deleted file may belong to another tenant. */
bool state_free_some(struct state_store *s, enum status so);
