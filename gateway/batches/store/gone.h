#pragma once
/* Deleted files with content that is removed piece by piece. */
#include "gateway/batches/store/state.h"

/* End of a WHERE clause on `file`. With it a statement does not see deleted files. */
#define STATE_NOT_GONE " AND file.no NOT IN (SELECT no FROM gone)"

/* Hides the file with this number. Its content is removed piece by piece. */
enum status state_hide_file(struct state_store *s, int64_t no, struct error *err);
/* Removes one piece. Returns false when there is none, or it cannot be removed now. */
bool state_sweep(struct state_store *s);
/* Makes some room after a write failed with status `so`. Returns true when room was made. It
 * normally writes no zeros. With STATUS_DENIED (a tenant's share) it does: the deleted file may
 * belong to another tenant. */
bool state_free_some(struct state_store *s, enum status so);
