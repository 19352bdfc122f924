/* A link over a TCP socket: what the kernel takes and has.
 *
 * A network that swallows packets looks like a peer that computes for long: no error, no byte. What
 * tells them apart is the peer's kernel, which acknowledges data and probes whatever its process
 * does (slow, stopped, its buffers full). TCP_USER_TIMEOUT would not do: it also ends connections
 * whose peer answers every probe with "no room yet". */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "worker/comm/links/link.h"

/* Three segments in a row without an answer, and no sign of the peer's kernel for five seconds:
 * above any pause of a network that works, far below the limit of a collective. */
enum { SILENT_MS = 5000, UNANSWERED_MIN = 3 };
enum { PROBE_SECONDS = 1, PROBES_MAX = 60 }; /* of a connection on which nothing is under way */

static enum status check_path(int fd, struct error *err)
{
    struct tcp_info i = {0};
    socklen_t n = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) != 0)
        return STATUS_OK; /* a kernel that does not say */
    bool unanswered = i.tcpi_retransmits >= UNANSWERED_MIN || i.tcpi_probes >= UNANSWERED_MIN;
    if (!unanswered || i.tcpi_last_ack_recv < SILENT_MS)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "its host has not answered for %u s: is the network between them cut, or a "
                     "firewall or a smaller MTU in the way?",
                     i.tcpi_last_ack_recv / 1000);
}

static bool is_for_later(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static struct msghdr message(const struct iovec *v, size_t n)
{
    return (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n};
}

/* A header and what it is of in one packet: a packet of its own is another way through both
 * kernels, a third of the time of short ones. */
static enum status tcp_send(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                            struct error *err)
{
    const struct msghdr m = message(v, n);
    ssize_t rc = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    *moved = rc > 0 ? (size_t)rc : 0;
    if (rc < 0 && !is_for_later(errno))
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    return STATUS_OK;
}

/* Of room for a byte at least: nothing read is the other end's end. */
static enum status tcp_recv(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                            struct error *err)
{
    struct msghdr m = message(v, n);
    *moved = 0;
    ssize_t rc = recvmsg(l->fd, &m, MSG_DONTWAIT);
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

/* Errors are told by the next send or recv, with their reason; silence only here. */
static enum status tcp_after_sleep(struct comm_link *l, short revents, struct error *err)
{
    return revents ? STATUS_OK : check_path(l->fd, err);
}

static enum status tcp_check_idle(struct comm_link *l, struct error *err)
{
    return check_path(l->fd, err);
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
                                             .check_idle = tcp_check_idle,
                                             .close = tcp_close};

/* BBR sends at the rate that it has measured, by a timer. Where something has filled the path once
 * (the sums of a prompt) the rate is what two busy hosts made of it, and each of a step's short
 * sums waits for the timer. Only before it connects: a socket that has begun with BBR is paced
 * whatever it changes to. Not everybody may have cubic (net.ipv4.tcp_allowed_congestion_control);
 * reno is anybody's. */
static void avoid_pacing(int fd)
{
    static const char *const others[] = {"cubic", "reno"};
    char name[16] = "";
    socklen_t n = sizeof name - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n) != 0 || strncmp(name, "bbr", 3) != 0)
        return;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, others[i], strlen(others[i])) == 0)
            return;
}

/* Without either things are slow, not wrong. */
void link_tcp_prepare(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    avoid_pacing(fd);
}

enum status link_tcp_new(int fd, struct comm_link **out, struct error *err)
{
    static const struct {
        int option, value;
    } probing[] = {
        {TCP_KEEPIDLE, PROBE_SECONDS}, {TCP_KEEPINTVL, PROBE_SECONDS}, {TCP_KEEPCNT, PROBES_MAX}};
    int on = 1;
    struct comm_link *l = mem_zalloc(sizeof *l);
    /* Without them a silent network costs the limit of a collective: slow, not wrong. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (size_t i = 0; i < sizeof probing / sizeof probing[0]; i++)
        (void)setsockopt(fd, IPPROTO_TCP, probing[i].option, &probing[i].value,
                         sizeof probing[i].value);
    *l = (struct comm_link){.ops = &tcp_ops, .fd = fd};
    *out = l;
    return STATUS_OK;
}
