#pragma once
/* A queue of bytes from one writer to one reader, in memory that both map. Each end keeps its own
 * index and the size to itself and checks the other's whenever it looks, so a peer that writes
 * nonsense over the whole memory is told (STATUS_IO) and makes this end touch nothing else. What
 * comes out is as hostile as from a socket.
 *
 * An end that finds nothing to do may say that it sleeps (ring_*_sleeps) and look again; the other
 * end asks after each move whether to wake it (ring_*_woken). Index and flag are sequentially
 * consistent, so one of the two sees the other: no wake-up is lost.
 *
 * One thread per end. Nothing here waits or allocates. */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Two cache lines apart: processors fetch lines in pairs. */
#define RING_ALIGN 128

/* Shared. All zero is an empty ring. A flag lies beside the index of the end that asks for it. */
struct ring_shared {
    alignas(RING_ALIGN) _Atomic uint64_t head; /* bytes ever written */
    _Atomic uint32_t reader_sleeps;
    alignas(RING_ALIGN) _Atomic uint64_t tail; /* bytes ever read */
    _Atomic uint32_t writer_sleeps;
};

/* One end, private to its process. */
struct ring {
    struct ring_shared *shared;
    uint8_t *bytes;      /* [size] */
    uint64_t size;       /* a power of two */
    uint64_t own, other; /* this end's index, and the last good one of the other */
};

/* Either end of a ring that nothing has gone through yet. */
void ring_init(struct ring *r, struct ring_shared *shared, uint8_t *bytes, uint64_t size);

/* Moves what goes now, 0 .. n bytes. */
MUST_USE enum status ring_write(struct ring *r, const void *data, size_t n, size_t *moved,
                                struct error *err);
MUST_USE enum status ring_read(struct ring *r, void *data, size_t n, size_t *moved,
                               struct error *err);

/* Is there room to write, something to read? True also for a broken ring: the move says so. */
bool ring_can_write(struct ring *r);
bool ring_can_read(struct ring *r);

/* The end's own flag. Set it, look again, then sleep; clear it afterwards. */
void ring_writer_sleeps(struct ring *r, bool sleeps);
void ring_reader_sleeps(struct ring *r, bool sleeps);
/* After a move: true when the other end has to be woken now. */
bool ring_reader_woken(struct ring *r);
bool ring_writer_woken(struct ring *r);
