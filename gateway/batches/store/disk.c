#include "gateway/batches/store/disk.h"

#include <sys/statvfs.h>

enum { FULL_BYTES = 1 << 20 }; /* with less free space than this the disk counts as full */
#define LOW_BYTES (64ull << 20)

struct disk_room state_disk_room(const struct state_store *s)
{
    struct statvfs v;
    if (statvfs(s->dir, &v) != 0)
        return (struct disk_room){0};
    return (struct disk_room){(uint64_t)v.f_blocks * v.f_frsize, (uint64_t)v.f_bavail * v.f_frsize};
}

bool state_disk_is_full(const struct state_store *s)
{
    return state_disk_room(s).free < FULL_BYTES;
}

bool disk_room_is_low(struct disk_room r)
{
    return r.free < LOW_BYTES || r.free < r.bytes / 20;
}

bool state_disk_is_low(const struct state_store *s)
{
    return disk_room_is_low(state_disk_room(s));
}

enum status state_wants(struct state_store *s, uint64_t bytes, struct error *err)
{
    struct disk_room r = state_disk_room(s);
    uint64_t wanted = 2 * bytes + FULL_BYTES;
    if (r.bytes == 0 || r.free >= wanted)
        return STATUS_OK;
    s->disk_full = true;
    return error_set(err, STATUS_NO_MEMORY,
                     "--state-dir %s: the disk has only %llu free bytes, and this call needs %llu. "
                     "Free some disk space",
                     s->dir, (unsigned long long)r.free, (unsigned long long)wanted);
}
