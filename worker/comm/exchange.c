/* Runs one exchange between this rank and all its peers, on the compute thread. comm.c passes a
 * part per peer. exchange_run sends and receives the parts over the links in both directions at
 * once, and returns when all parts have arrived. A waiting rank spins first, then yields or
 * sleeps in poll. A header before each part names the collective, its number and its size, so
 * that ranks in different steps are detected. Invariants: parts belong to the caller and stay
 * valid during the call. Every header is checked before its data is copied out. After an error
 * the links are unusable, and the caller leaves the group. */
#include "worker/comm/exchange.h"

#include <endian.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/spin.h"

/* `header` precedes each part. Its fields are little-endian, since the two ends may be different
 * machines. */
struct header {
    uint32_t counter;
    uint8_t kind, root, part, zero;
    uint64_t n_bytes;
};
_Static_assert(sizeof(struct header) == 16, "no padding: it crosses the wire");
_Static_assert(COMM_MAX_RANKS <= UINT8_MAX, "a root fits its field");

static const char *const kind_names[COLLECTIVE_COUNT] = {"all-reduce", "all-gather", "gather",
                                                         "broadcast"};

static size_t left_of(const struct iovec v[2])
{
    return v[0].iov_len + v[1].iov_len;
}

static void advance(struct iovec v[2], size_t n)
{
    for (int i = 0; i < 2; i++) {
        size_t here = n < v[i].iov_len ? n : v[i].iov_len;
        v[i].iov_base = (uint8_t *)v[i].iov_base + here;
        v[i].iov_len -= here;
        n -= here;
    }
}

/* ---- set-up of one exchange ---- */

static void put_header(const struct exchange *x, struct exchange_what what, uint64_t n_bytes,
                       uint8_t *out)
{
    struct header h = {.counter = htole32(x->counter),
                       .kind = (uint8_t)what.kind,
                       .root = (uint8_t)what.root,
                       .part = x->part,
                       .n_bytes = htole64(n_bytes)};
    memcpy(out, &h, sizeof h);
}

static void set_up_send(const struct exchange *x, struct exchange_what what,
                        const struct exchange_part *part, struct exchange_peer *p)
{
    size_t n_header = what.goes_on ? 0 : sizeof(struct header);
    bool staged = n_header && part->n_send <= EXCHANGE_STAGE_BYTES - n_header;
    if (n_header)
        put_header(x, what, part->send_bytes, p->stage_out);
    if (staged && part->n_send > 0)
        memcpy(p->stage_out + n_header, part->send, part->n_send);
    p->send[0] = (struct iovec){p->stage_out, n_header + (staged ? part->n_send : 0)};
    /* the part is only read; an iovec has one type for both directions */
    p->send[1] = (struct iovec){(uint8_t *)part->send, staged ? 0 : part->n_send};
}

static void set_up_recv(struct exchange_what what, const struct exchange_part *part,
                        struct exchange_peer *p)
{
    size_t n_header = what.goes_on ? 0 : sizeof(struct header);
    bool staged = n_header && part->n_recv <= EXCHANGE_STAGE_BYTES - n_header;
    p->header_due = n_header > 0;
    p->expect_bytes = part->recv_bytes;
    p->unstage = staged && part->n_recv > 0 ? part->recv : NULL;
    p->n_unstage = staged ? part->n_recv : 0;
    p->recv[0] = (struct iovec){p->stage_in, n_header + p->n_unstage};
    p->recv[1] = (struct iovec){part->recv, staged ? 0 : part->n_recv};
}

static void set_up(struct exchange *x, struct exchange_what what, const struct exchange_part *parts)
{
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        struct exchange_peer *p = &x->peers[r];
        memset(p->send, 0, sizeof p->send);
        memset(p->recv, 0, sizeof p->recv);
        p->header_due = false;
        p->unstage = NULL;
        if (r != x->rank && parts[r].sends)
            set_up_send(x, what, &parts[r], p);
        if (r != x->rank && parts[r].receives)
            set_up_recv(what, &parts[r], p);
    }
}

/* ---- moving ---- */

static void describe(const struct header *h, char *out, size_t out_size)
{
    int n;
    if (h->kind >= COLLECTIVE_COUNT) {
        snprintf(out, out_size, "an unknown collective (kind %u)", h->kind);
        return;
    }
    n = snprintf(out, out_size, "%s %u of %llu bytes", kind_names[h->kind], h->counter,
                 (unsigned long long)h->n_bytes);
    if ((h->kind == COLLECTIVE_BROADCAST || h->kind == COLLECTIVE_GATHER) && n > 0 &&
        (size_t)n < out_size)
        n += snprintf(out + n, out_size - (size_t)n, " %s rank %u",
                      h->kind == COLLECTIVE_GATHER ? "to" : "from", h->root);
    if (h->part > 0 && n > 0 && (size_t)n < out_size)
        snprintf(out + n, out_size - (size_t)n, " of part %u", h->part);
}

static enum status check_header(const struct exchange *x, struct exchange_what what, uint32_t rank,
                                struct error *err)
{
    struct exchange_peer *p = &x->peers[rank];
    struct header theirs, ours = {.counter = x->counter,
                                  .kind = (uint8_t)what.kind,
                                  .root = (uint8_t)what.root,
                                  .part = x->part,
                                  .n_bytes = p->expect_bytes};
    char they_are[96], we_are[96];
    memcpy(&theirs, p->stage_in, sizeof theirs);
    theirs.counter = le32toh(theirs.counter);
    theirs.n_bytes = le64toh(theirs.n_bytes);
    p->header_due = false;
    if (memcmp(&theirs, &ours, sizeof ours) == 0)
        return STATUS_OK;
    describe(&theirs, they_are, sizeof they_are);
    describe(&ours, we_are, sizeof we_are);
    return error_set(
        err, STATUS_INVALID,
        "%s is in %s, but this rank is in %s: the ranks ran different steps. Report this bug",
        p->name, they_are, we_are);
}

enum status exchange_gone(const struct exchange *x, uint32_t rank, struct error *err)
{
    return error_prefix(err, STATUS_IO, "%s at %s is disconnected", x->peers[rank].name,
                        x->peers[rank].address);
}

static enum status send_some(struct exchange *x, uint32_t rank, bool *moved, struct error *err)
{
    struct exchange_peer *p = &x->peers[rank];
    size_t n = 0, i = p->send[0].iov_len == 0;
    TRY(p->link->ops->send(p->link, p->send + i, 2 - i, &n, err));
    advance(p->send, n);
    *moved |= n > 0;
    return STATUS_OK;
}

static enum status recv_some(struct exchange *x, struct exchange_what what, uint32_t rank,
                             bool *moved, struct error *err)
{
    struct exchange_peer *p = &x->peers[rank];
    size_t n = 0, i = p->recv[0].iov_len == 0;
    if (p->link->ops->recv(p->link, p->recv + i, 2 - i, &n, err) != STATUS_OK)
        return exchange_gone(x, rank, err);
    advance(p->recv, n);
    *moved |= n > 0;
    if (p->header_due && (uint8_t *)p->recv[0].iov_base >= p->stage_in + sizeof(struct header))
        TRY(check_header(x, what, rank, err));
    if (p->unstage && left_of(p->recv) == 0) {
        memcpy(p->unstage, p->stage_in + sizeof(struct header), p->n_unstage);
        p->unstage = NULL;
    }
    return STATUS_OK;
}

/* Reports a failed send. A peer that noticed first that the ranks run different steps has sent
 * its header and left. That header explains more than the error "connection reset". */
static enum status send_failed(struct exchange *x, struct exchange_what what, uint32_t rank,
                               struct error *err)
{
    struct error theirs;
    bool moved = false;
    if (x->peers[rank].header_due && recv_some(x, what, rank, &moved, &theirs) == STATUS_INVALID) {
        *err = theirs;
        return STATUS_INVALID;
    }
    return exchange_gone(x, rank, err);
}

/* Makes one round over all links. The round sends everything before it checks received headers.
 * A rank that finds a mismatch has therefore already sent its own header to the others. */
static enum status move_some(struct exchange *x, struct exchange_what what, bool *moved, bool *done,
                             struct error *err)
{
    *moved = false;
    *done = true;
    for (uint32_t r = 0; r < x->n_ranks; r++)
        if (left_of(x->peers[r].send) > 0 && send_some(x, r, moved, err) != STATUS_OK)
            return send_failed(x, what, r, err);
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        if (left_of(x->peers[r].recv) > 0)
            TRY(recv_some(x, what, r, moved, err));
        *done &= left_of(x->peers[r].send) + left_of(x->peers[r].recv) == 0;
    }
    return STATUS_OK;
}

/* ---- sleeping ---- */

static enum status say_timeout(const struct exchange *x, struct exchange_what what,
                               struct error *err)
{
    char who[160];
    size_t n = 0;
    who[0] = '\0';
    for (uint32_t r = 0; r < x->n_ranks && n < sizeof who; r++)
        if (left_of(x->peers[r].send) + left_of(x->peers[r].recv) > 0)
            n += (size_t)snprintf(who + n, sizeof who - n, "%s%s at %s", n ? ", " : "",
                                  x->peers[r].name, x->peers[r].address);
    return error_set(
        err, STATUS_TIMEOUT,
        "no data arrived for %llu s in %s %u. This rank waits for %s: look at their logs",
        (unsigned long long)(x->timeout_ns / NS_PER_S), kind_names[what.kind], x->counter, who);
}

/* Sleeps until a link can move bytes, an interrupt arrives, or a slice of time has passed. */
static enum status sleep_once(struct exchange *x, uint64_t deadline_ns, struct error *err)
{
    struct pollfd fds[COMM_MAX_RANKS + 1];
    uint32_t rank_of[COMM_MAX_RANKS];
    size_t n = 0;
    bool ready = false;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        struct exchange_peer *p = &x->peers[r];
        bool wants_send = left_of(p->send) > 0, wants_recv = left_of(p->recv) > 0;
        if (!wants_send && !wants_recv)
            continue;
        short events = p->link->ops->before_sleep(p->link, wants_send, wants_recv);
        ready |= events == 0;
        rank_of[n] = r;
        fds[n++] = (struct pollfd){.fd = p->link->fd, .events = events};
    }
    enum status s = STATUS_OK;
    if (!ready)
        s = waiter_poll(x->waiter, fds, n, deadline_ns, err);
    for (size_t i = 0; i < n; i++) {
        struct comm_link *l = x->peers[rank_of[i]].link;
        struct error e;
        enum status after = l->ops->after_sleep(l, fds[i].revents, &e);
        if (after != STATUS_OK && s == STATUS_OK) {
            *err = e;
            s = exchange_gone(x, rank_of[i], err);
        }
    }
    return s;
}

/* Spins or yields the CPU between two checks of the links. Returns false when the rank should
 * sleep instead. A yielded CPU is returned at once when the neighbour is another waiting rank,
 * but only after a whole time slice when the neighbour is a busy process. Beside such a process
 * a sleeping rank is woken at once and a yielding rank is not. After a yield of more than
 * LONG_YIELD_NS this rank therefore does not yield for NO_YIELD_NS. */
enum { LONG_YIELD_NS = 2000000, NO_YIELD_NS = 100000000 };
static bool stay_awake(struct exchange *x, uint64_t now_ns)
{
    if (!x->yields) {
        spin_pause();
        return true;
    }
    if (now_ns < x->yield_from_ns)
        return false;
    (void)sched_yield();
    uint64_t back_ns = clock_mono_ns();
    if (back_ns - now_ns > LONG_YIELD_NS)
        x->yield_from_ns = back_ns + NO_YIELD_NS;
    return true;
}

static enum status run(struct exchange *x, struct exchange_what what, struct error *err)
{
    uint64_t last_moved = clock_mono_ns();
    for (;;) {
        bool moved, done;
        TRY(move_some(x, what, &moved, &done, err));
        if (done)
            return STATUS_OK;
        if (waiter_interrupted(x->waiter))
            return waiter_closed(err);
        uint64_t now = clock_mono_ns();
        if (moved) {
            last_moved = now;
            /* The limit is checked here too: sleep_once may never time out while a link keeps
             * poll busy. */
        } else if (now - last_moved >= x->timeout_ns) {
            return say_timeout(x, what, err);
        } else if (now - last_moved >= x->spin_ns || !stay_awake(x, now)) {
            enum status s = sleep_once(x, last_moved + x->timeout_ns, err);
            if (s != STATUS_OK && s != STATUS_TIMEOUT)
                return s;
        }
    }
}

enum status exchange_run(struct exchange *x, struct exchange_what what,
                         const struct exchange_part *parts, struct error *err)
{
    struct error own;
    if (waiter_interrupted(x->waiter))
        return waiter_closed(err);
    waiter_bump(x->waiter);
    if (x->n_ranks == 1)
        return STATUS_OK;
    set_up(x, what, parts);
    own.text[0] = '\0';
    enum status s = run(x, what, &own);
    if (s != STATUS_OK && err)
        *err = own;
    return s;
}
