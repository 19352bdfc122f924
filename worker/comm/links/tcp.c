/* Implements a link over a TCP socket. Bytes move when the kernel accepts them or has received
 * them.
 *
 * A network that loses all packets looks like a peer that computes for a long time: there is no
 * error and no byte. Only the peer's kernel shows the difference, since it acknowledges data and
 * answers probes even when its process is slow, stopped or has full buffers. TCP_USER_TIMEOUT is
 * not usable: it also ends connections whose peer answers every probe but has no buffer space
 * yet. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "worker/comm/links/link.h"

/* A peer counts as lost after UNANSWERED_MIN unanswered segments in a row and SILENT_MS without
 * an answer from its kernel. This time is longer than any pause of a working network and far
 * below the timeout of a collective. */
enum { SILENT_MS = 5000, UNANSWERED_MIN = 3 };
/* keep-alive probes on idle connections: interval in seconds, and number */
enum { PROBE_SECONDS = 1, PROBES_MAX = 60 };

static enum status check_path(int fd, struct error *err)
{
    struct tcp_info i = {0};
    socklen_t n = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) != 0)
        return STATUS_OK; /* the kernel does not report the state */
    bool unanswered = i.tcpi_retransmits >= UNANSWERED_MIN || i.tcpi_probes >= UNANSWERED_MIN;
    if (!unanswered || i.tcpi_last_ack_recv < SILENT_MS)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "the peer's host has not answered for %u s: check the network, the firewalls "
                     "and the MTU between the two hosts",
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

/* Sends a header and its data in one packet. Both kernels would have to process a separate
 * packet for the header, which takes a third of the time of a short exchange. */
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

/* Receives into `v`, which has space for at least one byte: 0 bytes read means that the peer has
 * closed the connection. */
static enum status tcp_recv(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                            struct error *err)
{
    struct msghdr m = message(v, n);
    *moved = 0;
    ssize_t rc = recvmsg(l->fd, &m, MSG_DONTWAIT);
    if (rc == 0)
        return error_set(err, STATUS_IO, "the peer closed the connection. See its log");
    if (rc < 0 && !is_for_later(errno))
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    *moved = rc > 0 ? (size_t)rc : 0;
    return STATUS_OK;
}

static short tcp_before_sleep(struct comm_link *l, bool wants_send, bool wants_recv)
{
    return (short)((wants_send ? POLLOUT : 0) | (wants_recv ? POLLIN : 0));
}

/* Checks whether the peer is silent for too long, when poll returned no event. The next send or
 * recv reports other errors with their reason. */
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

/* Replaces BBR by another congestion control. BBR sends at its measured rate, by a timer. Once
 * other data has filled the path (the sums of a prompt), the rate is too low, and each short sum
 * of a step waits for the timer. The function must be called before the connection: a socket
 * that began with BBR stays paced. cubic may be forbidden to users
 * (net.ipv4.tcp_allowed_congestion_control); reno never is. */
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

/* Sets the options of a socket. Failures are ignored: without the options the link is slow, not
 * wrong. */
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
    /* A failure is ignored. Without keep-alive a silent network is found only at the timeout of
     * a collective, which is slow but not wrong. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (size_t i = 0; i < sizeof probing / sizeof probing[0]; i++)
        (void)setsockopt(fd, IPPROTO_TCP, probing[i].option, &probing[i].value,
                         sizeof probing[i].value);
    *l = (struct comm_link){.ops = &tcp_ops, .fd = fd};
    *out = l;
    return STATUS_OK;
}
