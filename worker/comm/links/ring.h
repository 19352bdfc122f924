#pragma once
/* `ring` is a queue of bytes from one writer to one reader, in memory that both processes map.
 * Each end keeps its own index and the size in private memory and checks the other end's index
 * at each read of it. A peer that overwrites the whole memory is detected (STATUS_IO) and cannot
 * make this end touch other memory. The bytes themselves are as untrusted as those of a socket.
 *
 * An end that can move no bytes may set its sleep flag (ring_*_sleeps) and check the ring again.
 * The other end checks after each move whether to wake it (ring_*_woken). Index and flag are
 * sequentially consistent, so at least one end sees the other end's change: no wake-up is lost.
 *
 * Each end belongs to one thread. The functions do not wait or allocate. */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* RING_ALIGN is two cache lines, because processors fetch lines in pairs. */
#define RING_ALIGN 128

/* `ring_shared` is the part in shared memory. An empty ring is all zeros. Each flag is beside
 * the index of the end that reads the flag. */
struct ring_shared {
    alignas(RING_ALIGN) _Atomic uint64_t head; /* bytes written since the start */
    _Atomic uint32_t reader_sleeps;
    alignas(RING_ALIGN) _Atomic uint64_t tail; /* bytes read since the start */
    _Atomic uint32_t writer_sleeps;
};

/* `ring` is one end, private to its process. */
struct ring {
    struct ring_shared *shared;
    uint8_t *bytes;      /* bytes of the ring, [size] */
    uint64_t size;       /* bytes in the ring, a power of two */
    uint64_t own, other; /* this end's index, and the other end's last valid index */
};

/* Initialises either end of an unused ring. */
void ring_init(struct ring *r, struct ring_shared *shared, uint8_t *bytes, uint64_t size);

/* These two functions write or read as many bytes as possible now, from 0 to n. */
MUST_USE enum status ring_write(struct ring *r, const void *data, size_t n, size_t *moved,
                                struct error *err);
MUST_USE enum status ring_read(struct ring *r, void *data, size_t n, size_t *moved,
                               struct error *err);

/* These two functions return true when there is space to write, or a byte to read. They also
 * return true for a broken ring; the next move reports the error. */
bool ring_can_write(struct ring *r);
bool ring_can_read(struct ring *r);

/* Sets or clears the end's own sleep flag. Set it, check the ring again, then sleep; clear it
 * afterwards. */
void ring_writer_sleeps(struct ring *r, bool sleeps);
void ring_reader_sleeps(struct ring *r, bool sleeps);
/* Returns true when the other end must be woken now. Call it after a move. */
bool ring_reader_woken(struct ring *r);
bool ring_writer_woken(struct ring *r);
