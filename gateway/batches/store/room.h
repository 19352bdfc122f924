#pragma once
/* Manages the space on the store's disk: the reserve, unused pages, and zeros over deleted data. */
#include "gateway/batches/store/state.h"

/* Frees space for a deletion on a full disk: removes the reserve and moves the log into the
 * database. Returns false when there was nothing to free. */
bool state_make_room(struct state_store *s);
/* Frees space for a write on a full disk: returns some unused pages of the database to the disk.
 * Returns false when no page was returned. */
bool state_shrink(struct state_store *s);
/* Returns some unused pages to the disk when the disk is short of space. Creates the reserve
 * again when it is missing and fits. Returns true when more unused pages are left. */
bool state_settle(struct state_store *s);
/* Writes zeros over data that is deleted from now on. With `always` false, zeros are written
 * only when they need no extra space. */
void state_overwrite(struct state_store *s, bool always);
