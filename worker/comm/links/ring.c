#include "worker/comm/links/ring.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4,
              "an index is a plain word, in every process");

void ring_init(struct ring *r, struct ring_shared *shared, uint8_t *bytes, uint64_t size)
{
    assert(size > 0 && (size & (size - 1)) == 0);
    *r = (struct ring){.shared = shared, .bytes = bytes, .size = size};
}

/* Updates the number of bytes that the writer may write. The reader's index must lie between its
 * last value and the bytes written. Any other value would count as space that does not exist. */
static bool look_for_room(struct ring *r, uint64_t *n)
{
    uint64_t tail = atomic_load(&r->shared->tail), used = r->own - tail;
    bool good = used <= r->own - r->other;
    if (good)
        r->other = tail;
    *n = r->size - (r->own - r->other);
    return good;
}

/* Updates the number of bytes that the reader may read. */
static bool look_for_bytes(struct ring *r, uint64_t *n)
{
    uint64_t head = atomic_load(&r->shared->head), filled = head - r->own;
    bool good = filled <= r->size && filled >= r->other - r->own;
    if (good)
        r->other = head;
    *n = r->other - r->own;
    return good;
}

static enum status broken(struct error *err, const char *end, uint64_t says, const struct ring *r)
{
    return error_set(err, STATUS_IO,
                     "cannot use shared memory: the %s's position %" PRIu64
                     " is impossible (it was %" PRIu64 ", this rank's is %" PRIu64
                     ", and the ring has %" PRIu64
                     " bytes). The peer's process is faulty: restart it",
                     end, says, r->other, r->own, r->size);
}

/* Returns the number of bytes up to the end of the ring. A copy may wrap around once. */
static size_t first_part(const struct ring *r, size_t n)
{
    uint64_t to_end = r->size - (r->own & (r->size - 1));
    return n < to_end ? n : (size_t)to_end;
}

enum status ring_write(struct ring *r, const void *data, size_t n, size_t *moved, struct error *err)
{
    *moved = 0;
    uint64_t room = r->size - (r->own - r->other);
    if (room < n && !look_for_room(r, &room))
        return broken(err, "reader", atomic_load(&r->shared->tail), r);
    if (n > room)
        n = (size_t)room;
    if (n == 0)
        return STATUS_OK;
    size_t first = first_part(r, n);
    memcpy(r->bytes + (r->own & (r->size - 1)), data, first);
    memcpy(r->bytes, (const uint8_t *)data + first, n - first);
    r->own += n;
    atomic_store(&r->shared->head, r->own);
    *moved = n;
    return STATUS_OK;
}

enum status ring_read(struct ring *r, void *data, size_t n, size_t *moved, struct error *err)
{
    *moved = 0;
    uint64_t filled = r->other - r->own;
    if (filled < n && !look_for_bytes(r, &filled))
        return broken(err, "writer", atomic_load(&r->shared->head), r);
    if (n > filled)
        n = (size_t)filled;
    if (n == 0)
        return STATUS_OK;
    size_t first = first_part(r, n);
    memcpy(data, r->bytes + (r->own & (r->size - 1)), first);
    memcpy((uint8_t *)data + first, r->bytes, n - first);
    r->own += n;
    atomic_store(&r->shared->tail, r->own);
    *moved = n;
    return STATUS_OK;
}

bool ring_can_write(struct ring *r)
{
    uint64_t n;
    return !look_for_room(r, &n) || n > 0;
}

bool ring_can_read(struct ring *r)
{
    uint64_t n;
    return !look_for_bytes(r, &n) || n > 0;
}

void ring_writer_sleeps(struct ring *r, bool sleeps)
{
    atomic_store(&r->shared->writer_sleeps, sleeps);
}

void ring_reader_sleeps(struct ring *r, bool sleeps)
{
    atomic_store(&r->shared->reader_sleeps, sleeps);
}

/* Clears the flag and returns true when it was set. A plain load precedes the exchange, because
 * each exchange takes the cache line from the other reader of the flag. */
static bool woken(_Atomic uint32_t *flag)
{
    return atomic_load(flag) != 0 && atomic_exchange(flag, 0) != 0;
}

bool ring_reader_woken(struct ring *r)
{
    return woken(&r->shared->reader_sleeps);
}

bool ring_writer_woken(struct ring *r)
{
    return woken(&r->shared->writer_sleeps);
}
