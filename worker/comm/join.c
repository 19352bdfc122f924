/* Connects the ranks of a group, on the compute thread. comm_join calls join_peers, which
 * connects to the lower ranks one after the other, then accepts the higher ranks, and gives
 * every peer its link. The listener accepts any connection. Each connection is added to a small
 * set of pending connections, which are read without waiting for any single one. The first
 * message has a fixed size and proves that its sender knows the id of this formation.
 * Invariants: a connection without a proof holds only a place in the set, which a newer
 * connection may take; a rank that lost its place connects again. No pending connection outlives
 * join_peers. */
#include "worker/comm/join.h"

#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/comm/share.h"

enum { BACKLOG = 128, PENDING_MAX = 16, RETRY_FIRST_MS = 10, RETRY_MAX_MS = 200 };

enum pending_state { PENDING_HELLO, PENDING_CONFIRM };
/* `pending` is an accepted connection without a link yet. */
struct pending {
    int fd; /* socket of the connection; -1 = free place */
    enum pending_state state;
    uint64_t since; /* number in the order of arrival */
    size_t n_got;
    uint8_t confirm[CONFIRM_BYTES];
    struct transcript transcript;
    struct hello hello;
    struct handshake_end self;
};

struct join {
    struct comm *c;
    const struct comm_group *g;
    uint64_t deadline_ns;
    struct address addresses[COMM_MAX_RANKS];
    struct pending pending[PENDING_MAX];
    uint64_t n_arrived;
    uint32_t n_strangers;
    struct error stranger; /* reason why the last connection was refused */
};

/* Makes the error of a failed listen. STATUS_INVALID marks a mistake that a restart does not
 * repair. */
static enum status cannot_listen(const char *host, uint16_t port, int error, struct error *err)
{
    bool elsewhere = error == EADDRNOTAVAIL;
    const char *hint = elsewhere                     ? ". Set an address of this host"
                       : error == EADDRINUSE && port ? ". Choose another --comm-port"
                       : error == EACCES && port ? ". Only root may use a --comm-port below 1024"
                                                 : "";
    return error_set(err, elsewhere ? STATUS_INVALID : STATUS_IO,
                     "cannot listen for other ranks on --comm-host %.200s, port %u: %s%s", host,
                     port, strerror(error), hint);
}

enum status join_listen(const char *host, uint16_t port, int *fd, char address[COMM_ADDRESS_MAX],
                        struct error *err)
{
    struct address a;
    int on = 1;
    *fd = -1;
    TRY(address_resolve(host, port, &a, err));
    int s = socket(a.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0)
        link_tcp_prepare(s);
    if (s >= 0 && port) /* connections of the previous process may linger on the port */
        (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s < 0 || bind(s, (const struct sockaddr *)&a.sa, a.n) != 0 || listen(s, BACKLOG) != 0 ||
        getsockname(s, (struct sockaddr *)&a.sa, &a.n) != 0) {
        int error = errno;
        if (s >= 0)
            close(s);
        return cannot_listen(host, port, error, err);
    }
    enum status status = address_format(&a, address, err);
    if (status != STATUS_OK) {
        close(s);
        return status;
    }
    *fd = s;
    return STATUS_OK;
}

static bool wants(const struct join *j, uint32_t rank)
{
    return !j->g->links || j->g->links[rank];
}

/* `met` is the result of a handshake, known to both ends. */
struct met {
    int fd;
    uint32_t rank;
    bool accepted, same_cpus, share_memory;
    uint8_t token[TOKEN_BYTES];
};

static struct met meet(const struct join *j, uint32_t rank, int fd, const struct transcript *t,
                       const struct handshake_end ends[2])
{
    struct met m = {.fd = fd,
                    .rank = rank,
                    .same_cpus = handshake_same_cpus(&ends[0], &ends[1]),
                    .share_memory = handshake_share_memory(&ends[0], &ends[1])};
    token_make(t, j->g->id.ptr, m.token);
    return m;
}

/* Makes the link of a peer after its handshake. On success the link owns the socket. On an error
 * the socket stays the caller's. From here on the two ends wait for each other. */
static enum status link_up(struct join *j, const struct met *m, struct error *err)
{
    struct exchange_peer *p = &j->c->exchange.peers[m->rank];
    struct share share = {.waiter = &j->c->waiter,
                          .tcp_fd = m->fd,
                          .deadline_ns = j->deadline_ns,
                          .wanted = m->share_memory};
    struct comm_link *link = NULL;
    memcpy(share.token, m->token, sizeof share.token);
    TRY((m->accepted ? share_accept : share_connect)(&share, &link, err));
    if (link)
        close(m->fd);
    else
        TRY(link_tcp_new(m->fd, &link, err));
    p->link = link;
    p->same_cpus = m->same_cpus;
    return STATUS_OK;
}

/* ---- to the ranks below ---- */

/* Replaces the text of a timeout by `why`, since waiter_poll does not know the reason of the
 * wait. */
static enum status say_late(enum status s, const char *why, struct error *err)
{
    return s == STATUS_TIMEOUT ? error_set(err, s, "%s", why) : s;
}

static enum status connect_socket(struct join *j, uint32_t rank, int *out, struct error *err)
{
    const struct address *a = &j->addresses[rank];
    int error = 0;
    socklen_t n = sizeof error;
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *out = fd;
    if (fd < 0)
        return error_set(err, STATUS_LIMIT, "cannot create a socket: %s", strerror(errno));
    link_tcp_prepare(fd);
    if (connect(fd, (const struct sockaddr *)&a->sa, a->n) != 0) {
        error = errno;
        struct pollfd fds[2] = {{.fd = fd, .events = POLLOUT}};
        while (error == EINPROGRESS && !fds[0].revents)
            TRY(say_late(waiter_poll(&j->c->waiter, fds, 1, j->deadline_ns, err),
                         "the connection was not made in time: check that this host can reach that "
                         "worker's --comm-host",
                         err));
        if (error == EINPROGRESS && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
            error = errno;
    }
    if (error != 0)
        return error_set(
            err, STATUS_IO,
            "cannot connect: %s. Check that this host can reach that worker's --comm-host",
            error == ECONNREFUSED ? "connection refused" : strerror(error));
    return STATUS_OK;
}

/* Proves both ends to each other. *closed: the other end closed the connection, perhaps because
 * it is still in another formation. */
static enum status shake_hands(struct join *j, uint32_t rank, int fd, bool *closed,
                               struct error *err)
{
    struct waiter *w = &j->c->waiter;
    const uint8_t *id = j->g->id.ptr;
    struct transcript t;
    struct handshake_end ends[2];
    uint8_t confirm[CONFIRM_BYTES];
    struct hello h = {
        .term_epoch = j->g->term_epoch, .from = j->g->rank, .to = rank, .n_ranks = j->g->n_ranks};
    handshake_end_fill(&h.end, !j->c->no_shared_memory);
    hello_encode(&h, id, t.hello);
    enum status s = waiter_send(w, fd, t.hello, sizeof t.hello, j->deadline_ns, err);
    if (s == STATUS_OK)
        s = waiter_recv(w, fd, t.reply, sizeof t.reply, j->deadline_ns, err);
    *closed = s == STATUS_IO;
    if (s != STATUS_OK)
        return say_late(s,
                        "that rank does not answer: it joins another replica, or has not joined "
                        "this one yet. See its log",
                        err);
    ends[0] = h.end;
    TRY(reply_decode(&t, id, &ends[1], err));
    confirm_encode(&t, id, confirm);
    s = waiter_send(w, fd, confirm, sizeof confirm, j->deadline_ns, err);
    if (s == STATUS_OK) {
        struct met m = meet(j, rank, fd, &t, ends);
        s = link_up(j, &m, err);
    }
    *closed = s == STATUS_IO;
    return s;
}

static enum status try_connect(struct join *j, uint32_t rank, bool *closed, struct error *err)
{
    int fd = -1;
    *closed = false;
    enum status s = connect_socket(j, rank, &fd, err);
    if (s == STATUS_OK)
        s = shake_hands(j, rank, fd, closed, err);
    if (s != STATUS_OK && fd >= 0)
        close(fd);
    return s;
}

static enum status pause_before_retry(struct join *j, uint32_t ms, struct error *err)
{
    struct pollfd fds[1]; /* one more entry for the descriptor that waiter_poll adds */
    uint64_t until = clock_mono_ns() + ms * NS_PER_MS;
    if (until >= j->deadline_ns)
        return error_set(err, STATUS_TIMEOUT,
                         "cannot connect in time: that rank closed each connection, because it "
                         "joins another replica or has stopped joining. See its log");
    enum status s;
    do
        s = waiter_poll(&j->c->waiter, fds, 0, until, err);
    while (s == STATUS_OK);
    return s == STATUS_TIMEOUT ? STATUS_OK : s;
}

static enum status connect_to(struct join *j, uint32_t rank, struct error *err)
{
    const char *address = j->c->exchange.peers[rank].address;
    uint32_t pause_ms = RETRY_FIRST_MS;
    bool closed;
    enum status s;
    while ((s = try_connect(j, rank, &closed, err)) != STATUS_OK && closed) {
        if ((s = pause_before_retry(j, pause_ms, err)) != STATUS_OK)
            break;
        pause_ms = pause_ms < RETRY_MAX_MS ? 2 * pause_ms : RETRY_MAX_MS;
    }
    return s == STATUS_OK ? s : error_prefix(err, s, "rank %u at %s", rank, address);
}

/* ---- from the ranks above ---- */

static void drop(struct pending *p)
{
    close(p->fd);
    p->fd = -1;
}

static void turn_away(struct join *j, struct pending *p, const struct error *why)
{
    j->n_strangers++;
    j->stranger = *why;
    drop(p);
}

static enum status check_hello(const struct join *j, const struct hello *h, struct error *err)
{
    const struct comm_group *g = j->g;
    if (h->term_epoch != g->term_epoch || h->n_ranks != g->n_ranks || h->to != g->rank)
        return error_set(err, STATUS_DENIED,
                         "the connection is refused: the peer looks for rank %u of %u in epoch "
                         "%llu, but this is rank %u of %u in epoch %llu",
                         h->to, h->n_ranks, (unsigned long long)h->term_epoch, g->rank, g->n_ranks,
                         (unsigned long long)g->term_epoch);
    if (h->from <= g->rank || h->from >= g->n_ranks || !wants(j, h->from))
        return error_set(err, STATUS_DENIED,
                         "the connection is refused: the peer claims to be rank %u, which does not "
                         "connect to this rank",
                         h->from);
    if (j->c->exchange.peers[h->from].link)
        return error_set(err, STATUS_DENIED,
                         "the connection is refused: rank %u is already connected", h->from);
    return STATUS_OK;
}

static enum status on_hello(struct join *j, struct pending *p, struct error *err)
{
    const uint8_t *id = j->g->id.ptr;
    TRY(hello_decode(p->transcript.hello, id, &p->hello, err));
    TRY(check_hello(j, &p->hello, err));
    handshake_end_fill(&p->self, !j->c->no_shared_memory);
    reply_encode(&p->self, id, &p->transcript);
    /* A fresh connection has buffer space for the reply, so a connection without it is not from
     * a rank of this group. */
    if (send(p->fd, p->transcript.reply, REPLY_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) != REPLY_BYTES)
        return error_set(
            err, STATUS_IO,
            "the connection is closed: the peer does not receive the answer to its hello");
    p->state = PENDING_CONFIRM;
    p->n_got = 0;
    return STATUS_OK;
}

/* Checks the confirm and makes the link. STATUS_IO: the peer has left and may connect again. */
static enum status on_confirm(struct join *j, struct pending *p, struct error *err)
{
    TRY(confirm_check(p->confirm, &p->transcript, j->g->id.ptr, err));
    /* two connections may claim to be the same rank; the first one is used */
    TRY(check_hello(j, &p->hello, err));
    struct handshake_end ends[2] = {p->hello.end, p->self};
    struct met m = meet(j, p->hello.from, p->fd, &p->transcript, ends);
    m.accepted = true;
    enum status s = link_up(j, &m, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "rank %u at %s", m.rank, j->c->exchange.peers[m.rank].address);
    p->fd = -1;
    return STATUS_OK;
}

/* Reads the bytes that have arrived. Returns STATUS_AGAIN when the message is not complete.
 * Errors belong to this connection only. */
static enum status hear(struct join *j, struct pending *p, struct error *err)
{
    bool hello = p->state == PENDING_HELLO;
    uint8_t *to = hello ? p->transcript.hello : p->confirm;
    size_t n = hello ? HELLO_BYTES : CONFIRM_BYTES;
    ssize_t rc = recv(p->fd, to + p->n_got, n - p->n_got, MSG_DONTWAIT);
    if (rc < 0 && (errno == EAGAIN || errno == EINTR))
        return STATUS_AGAIN;
    if (rc <= 0)
        return error_set(
            err, STATUS_IO,
            "the peer closed the connection before it had sent its whole hello. See its log");
    p->n_got += (size_t)rc;
    if (p->n_got < n)
        return STATUS_AGAIN;
    return hello ? on_hello(j, p, err) : on_confirm(j, p, err);
}

static enum status advance(struct join *j, struct pending *p, struct error *err)
{
    struct error why;
    enum status s = STATUS_OK;
    while (p->fd >= 0 && s == STATUS_OK)
        s = hear(j, p, &why);
    if (s == STATUS_OK || s == STATUS_AGAIN)
        return STATUS_OK;
    /* these errors end the join, not only this connection */
    if (s == STATUS_CLOSED || s == STATUS_TIMEOUT) {
        *err = why;
        return s;
    }
    if (p->fd >= 0)
        turn_away(j, p, &why);
    return STATUS_OK;
}

/* Returns a free place, or else the place of the connection that has been silent for the
 * longest. Connections with a good hello are replaced last. */
static struct pending *place(struct join *j)
{
    struct pending *best = &j->pending[0];
    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &j->pending[i];
        if (p->fd < 0)
            return p;
        if (p->state < best->state || (p->state == best->state && p->since < best->since))
            best = p;
    }
    turn_away(j, best,
              &(struct error){STATUS_LIMIT,
                              "the peer sent nothing, and other connections needed its place"});
    return best;
}

/* Accepts one connection. *more is true when there may be another. */
static enum status accept_one(struct join *j, bool *more, struct error *err)
{
    int fd = accept4(j->c->listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    *more = fd >= 0;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return error_set(err, STATUS_LIMIT, "cannot accept the connection of another rank: %s",
                             strerror(errno));
        return STATUS_OK; /* there was no connection, or it is gone already */
    }
    struct pending *p = place(j);
    *p = (struct pending){.fd = fd, .since = j->n_arrived++};
    return advance(j, p, err);
}

static bool all_linked(const struct join *j)
{
    for (uint32_t r = j->g->rank + 1; r < j->g->n_ranks; r++)
        if (wants(j, r) && !j->c->exchange.peers[r].link)
            return false;
    return true;
}

static enum status say_missing(const struct join *j, struct error *err)
{
    char who[200];
    size_t n = 0;
    who[0] = '\0';
    for (uint32_t r = j->g->rank + 1; r < j->g->n_ranks && n < sizeof who; r++)
        if (wants(j, r) && !j->c->exchange.peers[r].link)
            n += (size_t)snprintf(who + n, sizeof who - n, "%s%u at %s", n ? ", " : "", r,
                                  j->c->exchange.peers[r].address);
    return error_set(err, STATUS_TIMEOUT,
                     "the following ranks did not connect to %s in time: %s. Check that they can "
                     "reach this address (--comm-host)",
                     j->c->listens_at, who);
}

static enum status accept_peers(struct join *j, struct error *err)
{
    while (!all_linked(j)) {
        struct pollfd fds[PENDING_MAX + 2] = {{.fd = j->c->listener_fd, .events = POLLIN}};
        for (int i = 0; i < PENDING_MAX; i++) /* poll ignores descriptors of -1 */
            fds[i + 1] = (struct pollfd){.fd = j->pending[i].fd, .events = POLLIN};
        enum status s = waiter_poll(&j->c->waiter, fds, PENDING_MAX + 1, j->deadline_ns, err);
        if (s == STATUS_TIMEOUT)
            return say_missing(j, err);
        if (s != STATUS_OK)
            return s;
        for (int i = 0; i < PENDING_MAX; i++)
            if (fds[i + 1].revents && j->pending[i].fd >= 0)
                TRY(advance(j, &j->pending[i], err));
        bool more = fds[0].revents != 0;
        for (int i = 0; i < PENDING_MAX && more && !all_linked(j); i++)
            TRY(accept_one(j, &more, err));
    }
    return STATUS_OK;
}

enum status join_peers(struct comm *c, const struct comm_group *g, uint64_t deadline_ns,
                       struct error *err)
{
    struct join j = {.c = c, .g = g, .deadline_ns = deadline_ns};
    enum status s = STATUS_OK;
    for (int i = 0; i < PENDING_MAX; i++)
        j.pending[i].fd = -1;
    for (uint32_t r = 0; r < g->n_ranks && s == STATUS_OK; r++)
        if (r != g->rank) {
            s = address_parse(g->addresses[r], &j.addresses[r], err);
            if (s != STATUS_OK)
                s = error_prefix(err, s, "rank %u", r);
            else
                snprintf(c->exchange.peers[r].address, COMM_ADDRESS_MAX, STR_FMT,
                         STR_ARG(g->addresses[r]));
        }
    for (uint32_t r = 0; r < g->rank && s == STATUS_OK; r++)
        if (wants(&j, r))
            s = connect_to(&j, r, err);
    if (s == STATUS_OK)
        s = accept_peers(&j, err);
    for (int i = 0; i < PENDING_MAX; i++)
        if (j.pending[i].fd >= 0)
            drop(&j.pending[i]);
    if (j.n_strangers > 0)
        log_info("comm_strangers", "n=%u last=%s", j.n_strangers, log_quote(j.stranger.text));
    return s;
}
