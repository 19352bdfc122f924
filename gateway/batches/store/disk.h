#pragma once
/* How much room the disk of the store has. */
#include "gateway/batches/store/state.h"

struct disk_room {
    uint64_t bytes, free; /* 0: the disk does not say */
};
struct disk_room state_disk_room(const struct state_store *s);
bool disk_room_is_low(struct disk_room r);
/* Has the disk of the store no room left? */
bool state_disk_is_full(const struct state_store *s);
bool state_disk_is_low(const struct state_store *s);
/* Is there room on the disk for so many bytes, twice: they are in the log and in the database until
 * the log is cut? STATUS_NO_MEMORY: no. */
enum status state_wants(struct state_store *s, uint64_t bytes, struct error *err);
