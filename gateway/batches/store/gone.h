#pragma once
/* Deleted files, whose content goes piece by piece. */
#include "gateway/batches/store/state.h"

/* The end of a statement's WHERE on `file`: the statement then sees no file that is on its way out.
 */
#define STATE_NOT_GONE " AND file.no NOT IN (SELECT no FROM gone)"

/* The file by its number is not seen any more, and goes piece by piece. */
enum status state_hide_file(struct state_store *s, int64_t no, struct error *err);
/* One piece. False: there is none, or it does not go now. */
bool state_sweep(struct state_store *s);
/* So: something is full. True: a little room was made, without zeros over it. STATUS_DENIED, a
 * tenant's share: with zeros, for what goes may be another's, who is not to pay for it. */
bool state_free_some(struct state_store *s, enum status so);
