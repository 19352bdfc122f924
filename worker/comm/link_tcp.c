/* A link over a TCP socket: what the kernel takes and has. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "worker/comm/link.h"

static bool is_for_later(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static enum status tcp_send(struct comm_link *l, const void *data, size_t n, size_t *moved,
                            struct error *err)
{
    ssize_t rc = send(l->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    *moved = rc > 0 ? (size_t)rc : 0;
    if (rc < 0 && !is_for_later(errno))
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    return STATUS_OK;
}

static enum status tcp_recv(struct comm_link *l, void *data, size_t n, size_t *moved,
                            struct error *err)
{
    *moved = 0;
    if (n == 0)
        return STATUS_OK;
    ssize_t rc = recv(l->fd, data, n, MSG_DONTWAIT);
    if (rc == 0)
        return error_set(err, STATUS_IO, "it closed the connection");
    if (rc < 0 && !is_for_later(errno))
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    *moved = rc > 0 ? (size_t)rc : 0;
    return STATUS_OK;
}

static short tcp_before_sleep(struct comm_link *l, bool wants_send, bool wants_recv)
{
    return (short)((wants_send ? POLLOUT : 0) | (wants_recv ? POLLIN : 0));
}

/* Errors are told by the next send or recv, with their reason. */
static enum status tcp_after_sleep(struct comm_link *l, short revents, struct error *err)
{
    return STATUS_OK;
}

static void tcp_close(struct comm_link *l)
{
    close(l->fd);
    mem_free(l);
}

static const struct comm_link_ops tcp_ops = {.name = "TCP",
                                             .send = tcp_send,
                                             .recv = tcp_recv,
                                             .before_sleep = tcp_before_sleep,
                                             .after_sleep = tcp_after_sleep,
                                             .close = tcp_close};

enum status link_tcp_new(int fd, struct comm_link **out, struct error *err)
{
    struct comm_link *l = mem_zalloc(sizeof *l);
    *l = (struct comm_link){.ops = &tcp_ops, .fd = fd};
    *out = l;
    return STATUS_OK;
}
