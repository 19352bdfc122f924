#include "worker/comm/wait.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"

enum { SLICE_MS = 100 };

enum status waiter_closed(struct error *err)
{
    return error_set(err, STATUS_CLOSED,
                     "this rank was interrupted while it waited for other ranks");
}

void waiter_bump(struct waiter *w)
{
    if (w->progress)
        atomic_fetch_add_explicit(w->progress, 1, memory_order_relaxed);
}

enum status waiter_poll(struct waiter *w, struct pollfd *fds, size_t n, uint64_t deadline_ns,
                        struct error *err)
{
    uint64_t now = clock_mono_ns();
    uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 0;
    fds[n] = (struct pollfd){.fd = w->wake_fd, .events = POLLIN};
    int rc = poll(fds, n + 1, left_ms < SLICE_MS ? (int)left_ms : SLICE_MS);
    if (rc < 0 && errno != EINTR)
        return error_set(err, STATUS_IO,
                         "cannot wait for other ranks: poll of %zu sockets failed: %s", n,
                         strerror(errno));
    if (rc < 0)
        for (size_t i = 0; i <= n; i++)
            fds[i].revents = 0;
    waiter_bump(w);
    if (waiter_interrupted(w))
        return waiter_closed(err);
    if (rc <= 0 && clock_mono_ns() >= deadline_ns)
        return error_set(err, STATUS_TIMEOUT,
                         "no data arrived from the other rank in time. See its log");
    return STATUS_OK;
}

static enum status wait_one(struct waiter *w, int fd, short events, uint64_t deadline_ns,
                            struct error *err)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}};
    do
        TRY(waiter_poll(w, fds, 1, deadline_ns, err));
    while (!fds[0].revents);
    return STATUS_OK;
}

enum status waiter_send(struct waiter *w, int fd, const void *data, size_t n, uint64_t deadline_ns,
                        struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t rc = send(fd, (const char *)data + done, n - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (rc >= 0)
            done += (size_t)rc;
        else if (errno == EAGAIN)
            TRY(wait_one(w, fd, POLLOUT, deadline_ns, err));
        else if (errno != EINTR)
            return error_set(err, STATUS_IO, "%s", strerror(errno));
    }
    return STATUS_OK;
}

enum status waiter_recv(struct waiter *w, int fd, void *data, size_t n, uint64_t deadline_ns,
                        struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t rc = recv(fd, (char *)data + done, n - done, MSG_DONTWAIT);
        if (rc > 0)
            done += (size_t)rc;
        else if (rc == 0)
            return error_set(err, STATUS_IO, "the peer closed the connection. See its log");
        else if (errno == EAGAIN)
            TRY(wait_one(w, fd, POLLIN, deadline_ns, err));
        else if (errno != EINTR)
            return error_set(err, STATUS_IO, "%s", strerror(errno));
    }
    return STATUS_OK;
}
