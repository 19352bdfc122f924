#pragma once
/* Waits on sockets, on the compute thread, until one is ready, the deadline has passed or
 * comm_interrupt was called. The heartbeat's progress counter is incremented meanwhile. */
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct waiter {
    _Atomic bool interrupted;
    int wake_fd;                /* eventfd; readable while interrupted */
    _Atomic uint64_t *progress; /* counter that each wait increments; may be NULL */
};

static inline bool waiter_interrupted(const struct waiter *w)
{
    return atomic_load_explicit(&w->interrupted, memory_order_acquire);
}
MUST_USE enum status waiter_closed(struct error *err); /* returns STATUS_CLOSED with its text */
void waiter_bump(struct waiter *w);

/* Calls poll() on fds[0 .. n), an array with space for one more entry, for at most 100 ms and
 * not past deadline_ns. Returns STATUS_OK also when nothing is ready, STATUS_CLOSED after an
 * interrupt, and STATUS_TIMEOUT when the deadline has passed and nothing is ready. The caller
 * may replace the text of a timeout. */
MUST_USE enum status waiter_poll(struct waiter *w, struct pollfd *fds, size_t n,
                                 uint64_t deadline_ns, struct error *err);
/* Sends all n bytes on a non-blocking socket. Returns STATUS_IO when the other end is gone. */
MUST_USE enum status waiter_send(struct waiter *w, int fd, const void *data, size_t n,
                                 uint64_t deadline_ns, struct error *err);
MUST_USE enum status waiter_recv(struct waiter *w, int fd, void *data, size_t n,
                                 uint64_t deadline_ns, struct error *err);
