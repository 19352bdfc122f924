#pragma once
/* Measures the free space on the store's disk. */
#include "gateway/batches/store/state.h"

struct disk_room {
    uint64_t bytes, free; /* size and free bytes of the disk; 0 = unknown */
};
struct disk_room state_disk_room(const struct state_store *s);
bool disk_room_is_low(struct disk_room r);
/* Returns true when the store's disk has no free space left. */
bool state_disk_is_full(const struct state_store *s);
bool state_disk_is_low(const struct state_store *s);
/* Checks that the disk has space for twice the bytes, because they are in the log and in the
 * database until the log is cut. Returns STATUS_NO_MEMORY when the disk has less space. */
enum status state_wants(struct state_store *s, uint64_t bytes, struct error *err);
