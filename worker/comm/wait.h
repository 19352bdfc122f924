#pragma once
/* Waiting on sockets, on the compute thread: until something is ready, the deadline has passed or
 * comm_interrupt was called. The heartbeat's progress is bumped meanwhile. */
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct waiter {
    _Atomic bool interrupted;
    int wake_fd;                /* an eventfd, readable while interrupted */
    _Atomic uint64_t *progress; /* or NULL */
};

static inline bool waiter_interrupted(const struct waiter *w)
{
    return atomic_load_explicit(&w->interrupted, memory_order_acquire);
}
MUST_USE enum status waiter_closed(struct error *err); /* STATUS_CLOSED and its text */
void waiter_bump(struct waiter *w);

/* poll() on fds[0 .. n), with room for one more behind them: at most 100 ms, not past deadline_ns.
 * STATUS_OK also when nothing is ready. STATUS_CLOSED: interrupted. STATUS_TIMEOUT: the deadline
 * has passed and nothing is ready; its text is the caller's to improve. */
MUST_USE enum status waiter_poll(struct waiter *w, struct pollfd *fds, size_t n,
                                 uint64_t deadline_ns, struct error *err);
/* All n bytes, on a non-blocking socket. STATUS_IO: the other end is gone. */
MUST_USE enum status waiter_send(struct waiter *w, int fd, const void *data, size_t n,
                                 uint64_t deadline_ns, struct error *err);
MUST_USE enum status waiter_recv(struct waiter *w, int fd, void *data, size_t n,
                                 uint64_t deadline_ns, struct error *err);
