/* Sets up a link through shared memory between two ranks of one host, on the compute thread.
 * join.c calls share_accept or share_connect after a handshake over TCP and gets a link, or NULL
 * when the ranks stay on TCP. The accepting end listens on an abstract Unix socket, checks user
 * and token of each connection, and passes the memory as a descriptor. The connecting end checks
 * the user, sends the token and maps the memory. Invariants: the TCP socket stays the caller's.
 * Both ends get the same result, because the connecting end's verdict is the last message on the
 * TCP connection. All descriptors are closed on every path, and no wait is longer than the
 * deadline. */
#include "worker/comm/share.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { BACKLOG = 8 };
enum { NAME_MAX_BYTES = WELCOME_BYTES - 1 };
/* TOKEN_MS limits the wait for the token: another process of this user may find the name,
 * connect and send nothing. */
enum { TOKEN_MS = 2000 };
enum { VERDICT_YES = 'y', VERDICT_NO = 'n' };

static socklen_t name_bytes(size_t n)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && n == sizeof who &&
           who.uid == geteuid();
}

static void close_link(struct comm_link **l)
{
    if (*l)
        (*l)->ops->close(*l);
    *l = NULL;
}

/* ---- the accepting end ---- */

/* Listens on an abstract Unix socket and writes its name to `welcome`. Returns -1, with an empty
 * welcome, when that fails. */
static int listen_somewhere(uint8_t welcome[WELCOME_BYTES])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t n = sizeof a;
    memset(welcome, 0, WELCOME_BYTES);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* an address without a name: the kernel chooses one */
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a.sun_family) != 0 ||
        listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0 ||
        n <= name_bytes(1) || n > name_bytes(NAME_MAX_BYTES)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    welcome[0] = (uint8_t)(n - name_bytes(0));
    memcpy(welcome + 1, a.sun_path, welcome[0]);
    return fd;
}

static bool token_is_good(const struct share *s, int fd)
{
    uint8_t token[TOKEN_BYTES];
    uint64_t deadline = clock_mono_ns() + TOKEN_MS * NS_PER_MS;
    if (deadline > s->deadline_ns)
        deadline = s->deadline_ns;
    return is_same_user(fd) &&
           waiter_recv(s->waiter, fd, token, sizeof token, deadline, NULL) == STATUS_OK &&
           token_equal(token, s->token);
}

static bool send_memory(int fd, int memory_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte = 'm';
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    memset(&control, 0, sizeof control);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memory_fd, sizeof memory_fd);
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* Offers the memory to the peer connected to `fd` when the peer sends the right token. Errors
 * are not reported: a peer whose socket closes without memory declines over TCP. The function
 * takes ownership of `fd`. */
static struct comm_link *offer_memory(const struct share *s, int fd)
{
    struct comm_link *link = NULL;
    int memory_fd = -1;
    if (!token_is_good(s, fd)) {
        close(fd);
        return NULL;
    }
    if (link_shm_offer(fd, &memory_fd, &link, NULL) != STATUS_OK)
        return NULL;
    if (!send_memory(link->fd, memory_fd))
        close_link(&link);
    close(memory_fd);
    return link;
}

/* Waits until a peer has the memory or has declined over TCP. */
static enum status hand_over(const struct share *s, int listener_fd, struct comm_link **out,
                             struct error *err)
{
    struct pollfd fds[3] = {{.fd = listener_fd, .events = POLLIN},
                            {.fd = s->tcp_fd, .events = POLLIN}};
    while (!*out) {
        TRY(waiter_poll(s->waiter, fds, 2, s->deadline_ns, err));
        if (fds[1].revents)
            return STATUS_OK;
        int fd =
            fds[0].revents ? accept4(listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd >= 0)
            *out = offer_memory(s, fd);
        else if (fds[0].revents && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return STATUS_OK; /* no descriptors are left: the peer sees the listener close */
    }
    return STATUS_OK;
}

enum status share_accept(const struct share *s, struct comm_link **out, struct error *err)
{
    uint8_t welcome[WELCOME_BYTES] = {0}, verdict = VERDICT_NO;
    *out = NULL;
    int fd = s->wanted ? listen_somewhere(welcome) : -1;
    enum status st =
        waiter_send(s->waiter, s->tcp_fd, welcome, sizeof welcome, s->deadline_ns, err);
    if (fd < 0)
        return st;
    if (st == STATUS_OK)
        st = hand_over(s, fd, out, err);
    close(fd);
    if (st == STATUS_OK)
        st = waiter_recv(s->waiter, s->tcp_fd, &verdict, 1, s->deadline_ns, err);
    if (st == STATUS_OK && verdict == VERDICT_YES && !*out)
        st = error_set(
            err, STATUS_PROTOCOL,
            "cannot use shared memory: the peer claims to have memory that it was not given");
    if (st != STATUS_OK || verdict != VERDICT_YES)
        close_link(out);
    return st;
}

/* ---- the connecting end ---- */

/* Receives the single descriptor of the memory. Returns -1 when there is none or more than one. */
static int recv_memory(int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       /* not CMSG_SPACE: its padding has space for a second descriptor */
                       .msg_controllen = CMSG_LEN(sizeof(int))};
    int memory_fd = -1;
    if (recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&memory_fd, CMSG_DATA(c), sizeof memory_fd);
    if (memory_fd >= 0 && m.msg_flags & MSG_CTRUNC) { /* more descriptors were sent than fit */
        close(memory_fd);
        memory_fd = -1;
    }
    return memory_fd;
}

/* Connects to the abstract socket of that name. Returns -1 when it does not exist or belongs to
 * another user. Names in the file system are refused. */
static int reach(const uint8_t welcome[WELCOME_BYTES])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint8_t n = welcome[0];
    if (n < 2 || n > NAME_MAX_BYTES || welcome[1] != '\0')
        return -1;
    memcpy(a.sun_path, welcome + 1, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 &&
        (connect(fd, (const struct sockaddr *)&a, name_bytes(n)) != 0 || !is_same_user(fd))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Receives and maps the memory that the peer offers. Only an interrupt and the deadline are
 * errors; after any other failure *out is NULL. */
static enum status take_memory(const struct share *s, const uint8_t welcome[WELCOME_BYTES],
                               struct comm_link **out, struct error *err)
{
    struct pollfd fds[2] = {{.fd = reach(welcome), .events = POLLIN}};
    int fd = fds[0].fd, memory_fd = -1;
    if (fd < 0)
        return STATUS_OK;
    enum status st = waiter_send(s->waiter, fd, s->token, TOKEN_BYTES, s->deadline_ns, err);
    while (st == STATUS_OK && !fds[0].revents)
        st = waiter_poll(s->waiter, fds, 1, s->deadline_ns, err);
    if (st == STATUS_OK)
        memory_fd = recv_memory(fd);
    if (memory_fd < 0) {
        close(fd);
        return st == STATUS_IO ? STATUS_OK : st;
    }
    if (link_shm_take(fd, memory_fd, out, NULL) != STATUS_OK)
        *out = NULL;
    close(memory_fd);
    return STATUS_OK;
}

enum status share_connect(const struct share *s, struct comm_link **out, struct error *err)
{
    uint8_t welcome[WELCOME_BYTES];
    *out = NULL;
    TRY(waiter_recv(s->waiter, s->tcp_fd, welcome, sizeof welcome, s->deadline_ns, err));
    if (welcome[0] == 0)
        return STATUS_OK;
    enum status st = STATUS_OK;
    if (s->wanted)
        st = take_memory(s, welcome, out, err);
    uint8_t verdict = *out ? VERDICT_YES : VERDICT_NO;
    if (st == STATUS_OK)
        st = waiter_send(s->waiter, s->tcp_fd, &verdict, 1, s->deadline_ns, err);
    if (st != STATUS_OK)
        close_link(out);
    return st;
}
