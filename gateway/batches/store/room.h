#pragma once
/* Room on the disk of the store: the reserve, unused pages, zeros over what is deleted. */
#include "gateway/batches/store/state.h"

/* For what frees room, on a full disk: gives up the reserve, and moves the log into the database.
 * False: there was nothing to give. */
bool state_make_room(struct state_store *s);
/* For what takes room, on a full disk: gives some of the database's unused pages back to it. False:
 * there were none. */
bool state_shrink(struct state_store *s);
/* Some unused pages go back to the disk if it is short of room; the reserve is made again if it is
 * missing and fits. True: there are more such pages. */
bool state_settle(struct state_store *s);
/* Zeros over what is deleted from here on, or none where that would take room. */
void state_overwrite(struct state_store *s, bool always);
