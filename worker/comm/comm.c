/* Manages the life of a communicator and builds its collectives on exchange.c. collectives/cpu.c
 * calls the collectives on the compute thread; the executor opens, joins and leaves. In an
 * all-reduce of up to DIRECT_BYTES, every rank sends its numbers to every rank. A larger one is
 * cut into blocks, and each block into one slice per rank. Each rank adds up its slice and sends
 * the sums to all. Invariants: every element is added in one chain ((x0 + x1) + x2) + ..., for
 * both sizes. After a failure every call fails until comm_leave. The listener outlives the
 * groups; only `next_fd` and the addresses change under the mutex. */
#include "worker/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/host/host.h"
#include "worker/comm/join.h"

enum { TIMEOUT_MS = 60000, JOIN_TIMEOUT_MS = 20000 };
/* SPIN_US and YIELD_US are the times for which a waiting rank checks its links before it sleeps.
 * With more ranks than CPUs, the rank yields its CPU between two checks. When no other rank
 * needs the CPU, yielding is much cheaper than sleeping and being woken, above all in a virtual
 * machine. */
enum { SPIN_US = 50, YIELD_US = 1000 };
enum { DIRECT_BYTES = 32 << 10 }; /* up to this size every rank sends all numbers to all ranks */
enum { ADD_FLOATS = 256 };
_Static_assert(DIRECT_BYTES / sizeof(float) <= COMM_BLOCK_FLOATS, "a direct sum is one block");

/* ---- life ---- */

enum status comm_open(const struct comm_options *o, struct comm **out, struct error *err)
{
    if (sodium_init() < 0)
        return error_set(err, STATUS_INTERNAL,
                         "cannot connect ranks: the library libsodium cannot be initialised");
    struct comm *c = mem_zalloc(sizeof *c);
    pthread_mutex_init(&c->mutex, NULL);
    c->exchange.waiter = &c->waiter;
    c->exchange.n_ranks = 1;
    c->waiter.progress = o->progress;
    c->listener_fd = c->next_fd = -1;
    c->port = o->port;
    c->no_shared_memory = o->no_shared_memory;
    c->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    c->n_cpus = host_cpus();
    c->waiter.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum status s = STATUS_OK;
    if (c->waiter.wake_fd < 0)
        s = error_set(err, STATUS_LIMIT, "cannot create an eventfd for the communicator: %s",
                      strerror(errno));
    if (s == STATUS_OK && o->host)
        s = comm_listen(c, o->host, err);
    if (s != STATUS_OK) {
        comm_close(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

/* Duplicates the present listener when `host` is still its address: with a fixed port no second
 * listener could be bound there. *fd is -1 when the address differs. */
static enum status same_listener(struct comm *c, const char *host, int *fd,
                                 char address[COMM_ADDRESS_MAX], struct error *err)
{
    struct address a;
    *fd = -1;
    TRY(address_resolve(host, c->port, &a, err));
    TRY(address_format(&a, address, err));
    pthread_mutex_lock(&c->mutex);
    if (c->listener_fd >= 0 && strcmp(address, c->listens_at) == 0)
        *fd = fcntl(c->listener_fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&c->mutex);
    return STATUS_OK;
}

enum status comm_listen(struct comm *c, const char *host, struct error *err)
{
    char address[COMM_ADDRESS_MAX];
    int fd;
    TRY(same_listener(c, host, &fd, address, err));
    if (fd < 0)
        TRY(join_listen(host, c->port, &fd, address, err));
    pthread_mutex_lock(&c->mutex);
    int unused = c->next_fd;
    c->next_fd = fd;
    memcpy(c->next_at, address, sizeof address);
    pthread_mutex_unlock(&c->mutex);
    if (unused >= 0)
        close(unused);
    memcpy(c->address, address, sizeof address);
    return STATUS_OK;
}

/* Makes the newest listener the one on which a join accepts. */
static void take_listener(struct comm *c)
{
    pthread_mutex_lock(&c->mutex);
    if (c->next_fd >= 0) {
        if (c->listener_fd >= 0)
            close(c->listener_fd);
        c->listener_fd = c->next_fd;
        memcpy(c->listens_at, c->next_at, sizeof c->listens_at);
        c->next_fd = -1;
    }
    pthread_mutex_unlock(&c->mutex);
}

/* Resets the state to that outside a group. An interrupt stays set. */
void comm_forget_group(struct comm *c)
{
    struct exchange *x = &c->exchange;
    for (uint32_t i = 0; i < c->n_parts; i++)
        comm_forget_group(c->parts[i]);
    for (uint32_t r = 0; !c->whole && x->peers && r < x->n_ranks; r++)
        if (x->peers[r].link)
            x->peers[r].link->ops->close(x->peers[r].link);
    mem_free(x->peers);
    mem_free(c->scratch);
    x->peers = NULL;
    c->scratch = NULL;
    x->rank = 0;
    x->n_ranks = 1;
    x->counter = 0;
    c->transport[0] = '\0';
}

void comm_close(struct comm *c)
{
    if (!c)
        return;
    comm_forget_group(c);
    for (uint32_t i = 0; i < c->n_parts; i++)
        mem_free(c->parts[i]);
    if (c->waiter.wake_fd >= 0)
        close(c->waiter.wake_fd);
    if (c->listener_fd >= 0)
        close(c->listener_fd);
    if (c->next_fd >= 0)
        close(c->next_fd);
    pthread_mutex_destroy(&c->mutex);
    mem_free(c);
}

/* Returns the bytes of one link, as for shared memory. A TCP link maps nothing, but takes about
 * as much in the kernel, and the kind of each link is known only when the group is formed. */
uint64_t comm_link_bytes(void)
{
    return link_shm_bytes();
}

uint64_t comm_group_bytes(uint32_t n_ranks, bool sums)
{
    uint64_t scratch = sums ? COMM_BLOCK_FLOATS * sizeof(float) : 0;
    return n_ranks > 1 ? n_ranks * (sizeof(struct exchange_peer) + scratch) : 0;
}

uint64_t comm_memory_bytes(uint32_t n_ranks)
{
    return n_ranks > 1 ? comm_group_bytes(n_ranks, true) + (n_ranks - 1) * comm_link_bytes() : 0;
}

const char *comm_address(const struct comm *c)
{
    return c->address;
}

void comm_make_id(uint8_t out[COMM_ID_BYTES])
{
    random_secure(out, COMM_ID_BYTES);
}

void comm_interrupt(struct comm *c)
{
    uint64_t one = 1;
    pthread_mutex_lock(&c->mutex);
    atomic_store_explicit(&c->waiter.interrupted, true, memory_order_release);
    /* EAGAIN: wake_fd is readable already */
    ssize_t rc = write(c->waiter.wake_fd, &one, sizeof one);
    (void)rc;
    pthread_mutex_unlock(&c->mutex);
}

void comm_leave(struct comm *c)
{
    uint64_t count;
    comm_forget_group(c);
    c->failed = STATUS_OK;
    pthread_mutex_lock(&c->mutex);
    atomic_store_explicit(&c->waiter.interrupted, false, memory_order_release);
    ssize_t rc = read(c->waiter.wake_fd, &count, sizeof count);
    (void)rc;
    pthread_mutex_unlock(&c->mutex);
}

uint32_t comm_rank(const struct comm *c)
{
    return c->exchange.rank;
}

uint32_t comm_n_ranks(const struct comm *c)
{
    return c->exchange.n_ranks;
}

const char *comm_transport(const struct comm *c)
{
    return c->transport;
}

/* ---- joining ---- */

static enum status check_group(const struct comm *c, const struct comm_group *g, struct error *err)
{
    if (g->n_ranks == 0 || g->n_ranks > COMM_MAX_RANKS || g->rank >= g->n_ranks)
        return error_set(err, STATUS_INVALID,
                         "rank %u of %u is invalid: a replica has 1 to %u ranks. Report this bug",
                         g->rank, g->n_ranks, COMM_MAX_RANKS);
    if (g->n_ranks > 1 && g->id.n != COMM_ID_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the communicator's id has %u bytes instead of %u. Report this bug",
                         g->id.n, COMM_ID_BYTES);
    if (g->n_ranks > 1 && c->listener_fd < 0)
        return error_set(err, STATUS_INVALID,
                         "cannot join a replica of %u ranks: this rank has no address for the "
                         "others. Start it with --comm-host",
                         g->n_ranks);
    return STATUS_OK;
}

struct comm_here comm_here(const struct comm *c)
{
    const struct exchange *x = &c->exchange;
    struct comm_here here = {0, 1};
    for (uint32_t r = 0; x->peers && r < x->n_ranks; r++)
        if (x->peers[r].link && x->peers[r].same_cpus) {
            here.i += r < x->rank;
            here.n++;
        }
    return here;
}

/* Describes the kinds of links in words, and decides how to wait when spinning would take a CPU
 * from a peer. */
static void describe_links(struct comm *c)
{
    struct exchange *x = &c->exchange;
    uint32_t n_here = comm_here(c).n, n_shared = 0, n_peers = 0;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        if (!x->peers[r].link)
            continue;
        n_peers++;
        n_shared += strcmp(x->peers[r].link->ops->name, "TCP") != 0;
    }
    x->yields = n_here > c->n_cpus;
    x->spin_ns = (x->yields ? YIELD_US : SPIN_US) * NS_PER_US;
    if (n_shared == 0 || n_shared == n_peers)
        snprintf(c->transport, sizeof c->transport, "%s", n_shared ? "shared memory" : "TCP");
    else
        snprintf(c->transport, sizeof c->transport, "shared memory to %u of %u ranks, TCP",
                 n_shared, n_peers);
}

enum status comm_make_room(struct comm *c, uint32_t n_ranks, bool sums, struct error *err)
{
    c->exchange.peers = mem_try_array(n_ranks, sizeof *c->exchange.peers);
    if (sums)
        c->scratch = mem_try_array(n_ranks * COMM_BLOCK_FLOATS, sizeof(float));
    if (c->exchange.peers && (!sums || c->scratch))
        return STATUS_OK;
    return error_set(err, STATUS_NO_MEMORY,
                     "not enough memory for the links of %u ranks. Free memory on this machine",
                     n_ranks);
}

static enum status link_group(struct comm *c, const struct comm_group *g, struct error *err)
{
    struct exchange *x = &c->exchange;
    uint32_t timeout_ms = g->timeout_ms ? g->timeout_ms : JOIN_TIMEOUT_MS;
    x->rank = g->rank;
    x->n_ranks = g->n_ranks;
    x->timeout_ns = c->timeout_ms * NS_PER_MS;
    if (g->n_ranks == 1)
        return STATUS_OK;
    TRY(comm_make_room(c, g->n_ranks, !g->links, err));
    for (uint32_t r = 0; r < g->n_ranks; r++)
        snprintf(x->peers[r].name, sizeof x->peers[r].name, "rank %u", r);
    TRY(join_peers(c, g, clock_mono_ns() + timeout_ms * NS_PER_MS, err));
    describe_links(c);
    return STATUS_OK;
}

enum status comm_join(struct comm *c, const struct comm_group *g, struct error *err)
{
    comm_forget_group(c);
    take_listener(c);
    c->failed = STATUS_OK;
    enum status s = waiter_interrupted(&c->waiter) ? waiter_closed(err) : check_group(c, g, err);
    if (s == STATUS_OK)
        s = link_group(c, g, err);
    if (s != STATUS_OK) {
        comm_forget_group(c);
        c->failed = s; /* otherwise the rank would act as a group of one, and sums would be wrong */
    }
    return s;
}

/* ---- collectives ---- */

enum status comm_check(struct comm *c, struct error *err)
{
    struct exchange *x = &c->exchange;
    for (uint32_t r = 0; x->peers && r < x->n_ranks; r++) {
        struct comm_link *l = x->peers[r].link;
        if (!l || !l->ops->check_idle || l->ops->check_idle(l, err) == STATUS_OK)
            continue;
        c->failed = STATUS_IO;
        return exchange_gone(x, r, err);
    }
    return STATUS_OK;
}

/* Returns the address of the failure status. A part shares this status with its whole. */
static enum status *failure_of(struct comm *c)
{
    return c->whole ? &c->whole->failed : &c->failed;
}

/* Begins a collective. Fails at once after an earlier error, since the peers may be in the
 * middle of another collective. */
static enum status begin(struct comm *c, struct error *err)
{
    if (waiter_interrupted(c->exchange.waiter))
        return waiter_closed(err);
    enum status failed = *failure_of(c);
    if (failed != STATUS_OK)
        return error_set(
            err, failed,
            "the replica's collectives failed earlier (%s): the replica must form again first",
            status_name(failed));
    c->exchange.counter++;
    return STATUS_OK;
}

static enum status end(struct comm *c, enum status s)
{
    *failure_of(c) = s;
    return s;
}

static enum status check_root(const struct comm *c, uint32_t root, struct error *err)
{
    if (root < c->exchange.n_ranks)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "a collective names rank %u as its root, but the replica has %u ranks. Report this bug",
        root, c->exchange.n_ranks);
}

enum status comm_all_gather(struct comm *c, const struct comm_part *parts, struct error *err)
{
    struct exchange_part e[COMM_MAX_RANKS] = {{0}};
    const struct comm_part *own = &parts[c->exchange.rank];
    TRY(begin(c, err));
    for (uint32_t r = 0; r < c->exchange.n_ranks; r++)
        e[r] = (struct exchange_part){.sends = true,
                                      .receives = true,
                                      .send = own->data,
                                      .n_send = own->n_bytes,
                                      .send_bytes = own->n_bytes,
                                      .recv = parts[r].data,
                                      .n_recv = parts[r].n_bytes,
                                      .recv_bytes = parts[r].n_bytes};
    return end(c, exchange_run(&c->exchange,
                               (struct exchange_what){COLLECTIVE_ALL_GATHER, 0, false}, e, err));
}

enum status comm_gather(struct comm *c, uint32_t root, const struct comm_part *parts,
                        struct error *err)
{
    struct exchange_part e[COMM_MAX_RANKS] = {{0}};
    uint32_t rank = c->exchange.rank;
    TRY(check_root(c, root, err));
    TRY(begin(c, err));
    for (uint32_t r = 0; r < c->exchange.n_ranks; r++)
        if (rank == root)
            e[r] = (struct exchange_part){.receives = true,
                                          .recv = parts[r].data,
                                          .n_recv = parts[r].n_bytes,
                                          .recv_bytes = parts[r].n_bytes};
        else
            e[r] = (struct exchange_part){.sends = r == root,
                                          .send = parts[rank].data,
                                          .n_send = parts[rank].n_bytes,
                                          .send_bytes = parts[rank].n_bytes};
    return end(c, exchange_run(&c->exchange, (struct exchange_what){COLLECTIVE_GATHER, root, false},
                               e, err));
}

enum status comm_broadcast(struct comm *c, uint32_t root, void *data, size_t n_bytes,
                           struct error *err)
{
    struct exchange_part e[COMM_MAX_RANKS] = {{0}};
    TRY(check_root(c, root, err));
    TRY(begin(c, err));
    for (uint32_t r = 0; r < c->exchange.n_ranks; r++)
        e[r] = (struct exchange_part){.sends = c->exchange.rank == root,
                                      .receives = r == root,
                                      .send = data,
                                      .n_send = n_bytes,
                                      .send_bytes = n_bytes,
                                      .recv = data,
                                      .n_recv = n_bytes,
                                      .recv_bytes = n_bytes};
    return end(c, exchange_run(&c->exchange,
                               (struct exchange_what){COLLECTIVE_BROADCAST, root, false}, e, err));
}

/* ---- sums ---- */

static void add_full(float *restrict sum, const float *restrict x)
{
    for (size_t i = 0; i < ADD_FLOATS; i++)
        sum[i] += x[i];
}

/* Replaces x[0 .. n) by the sum over the ranks in their order. The other ranks' values are in
 * scratch, this rank's are x itself. */
static void add_in_order(const struct comm *c, float *x, size_t n)
{
    const struct exchange *e = &c->exchange;
    float sum[ADD_FLOATS];
    for (size_t at = 0; at < n; at += ADD_FLOATS) {
        size_t m = n - at < ADD_FLOATS ? n - at : ADD_FLOATS;
        for (uint32_t r = 0; r < e->n_ranks; r++) {
            const float *share = r == e->rank ? x + at : c->scratch + r * COMM_BLOCK_FLOATS + at;
            if (r == 0)
                memcpy(sum, share, m * sizeof *sum);
            else if (m == ADD_FLOATS)
                add_full(sum, share);
            else
                for (size_t i = 0; i < m; i++)
                    sum[i] += share[i];
        }
        memcpy(x + at, sum, m * sizeof *sum);
    }
}

/* Returns the first element of slice r when n elements are cut among the ranks. */
static size_t slice_begin(size_t n, uint32_t r, uint32_t n_ranks)
{
    return n / n_ranks * r + (r < n % n_ranks ? r : n % n_ranks);
}

/* Sends all n <= COMM_BLOCK_FLOATS numbers from every rank to every rank. Each rank adds all of
 * them. */
static enum status reduce_direct(struct comm *c, struct exchange_what what, float *x, size_t n,
                                 uint64_t total_bytes, struct error *err)
{
    struct exchange_part e[COMM_MAX_RANKS] = {{0}};
    for (uint32_t r = 0; r < c->exchange.n_ranks; r++)
        e[r] = (struct exchange_part){.sends = true,
                                      .receives = true,
                                      .send = x,
                                      .n_send = n * sizeof *x,
                                      .send_bytes = total_bytes,
                                      .recv = c->scratch + r * COMM_BLOCK_FLOATS,
                                      .n_recv = n * sizeof *x,
                                      .recv_bytes = total_bytes};
    TRY(exchange_run(&c->exchange, what, e, err));
    add_in_order(c, x, n);
    return STATUS_OK;
}

/* Sends slice r of every rank's numbers to rank r, which adds them and sends the sums to all. A
 * slice has at most COMM_BLOCK_FLOATS numbers. */
static enum status reduce_cut(struct comm *c, struct exchange_what what, float *x, size_t n,
                              uint64_t total_bytes, struct error *err)
{
    struct exchange_part e[COMM_MAX_RANKS] = {{0}};
    uint32_t rank = c->exchange.rank, n_ranks = c->exchange.n_ranks;
    float *own = x + slice_begin(n, rank, n_ranks);
    size_t n_own = slice_begin(n, rank + 1, n_ranks) - slice_begin(n, rank, n_ranks);
    for (uint32_t r = 0; r < n_ranks; r++) {
        size_t from = slice_begin(n, r, n_ranks), to = slice_begin(n, r + 1, n_ranks);
        e[r] = (struct exchange_part){.sends = true,
                                      .receives = true,
                                      .send = x + from,
                                      .n_send = (to - from) * sizeof *x,
                                      .send_bytes = total_bytes,
                                      .recv = c->scratch + r * COMM_BLOCK_FLOATS,
                                      .n_recv = n_own * sizeof *x,
                                      .recv_bytes = total_bytes};
    }
    TRY(exchange_run(&c->exchange, what, e, err));
    add_in_order(c, own, n_own);
    /* The second exchange sends this rank's sums and receives the sums of the other ranks. */
    for (uint32_t r = 0; r < n_ranks; r++) {
        e[r].recv = x + slice_begin(n, r, n_ranks);
        e[r].n_recv = e[r].n_send;
    }
    for (uint32_t r = 0; r < n_ranks; r++) {
        e[r].send = own;
        e[r].n_send = n_own * sizeof *x;
    }
    what.goes_on = true;
    return exchange_run(&c->exchange, what, e, err);
}

/* Adds `x` over the ranks. With two ranks, cutting saves no bytes, only half of the additions.
 * Two ranks therefore cut only above one block, where cutting needs no more exchanges. */
static enum status reduce(struct comm *c, float *x, size_t n, struct error *err)
{
    struct exchange_what what = {COLLECTIVE_ALL_REDUCE, 0, false};
    uint32_t n_ranks = c->exchange.n_ranks;
    uint64_t total_bytes = n * sizeof *x;
    bool direct = total_bytes <= DIRECT_BYTES || (n_ranks == 2 && n <= COMM_BLOCK_FLOATS);
    size_t block = direct ? COMM_BLOCK_FLOATS : COMM_BLOCK_FLOATS * n_ranks;
    size_t at = 0;
    do {
        size_t m = n - at < block ? n - at : block;
        TRY((direct ? reduce_direct : reduce_cut)(c, what, x + at, m, total_bytes, err));
        what.goes_on = true;
        at += m;
    } while (at < n);
    return STATUS_OK;
}

enum status comm_all_reduce(struct comm *c, float *x, size_t n, struct error *err)
{
    if (n > SIZE_MAX / sizeof *x)
        return error_set(err, STATUS_INVALID,
                         "an all-reduce of %zu numbers is not supported. Report this bug", n);
    if (c->exchange.n_ranks > 1 && !c->scratch)
        return error_set(
            err, STATUS_INVALID,
            "an all-reduce was called in a communicator that is not for sums. Report this bug");
    TRY(begin(c, err));
    return end(c, c->exchange.n_ranks == 1 ? STATUS_OK : reduce(c, x, n, err));
}
