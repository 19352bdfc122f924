/* Moves KV blocks between this rank and a rank of another replica. kv_orders.c pushes the head's
 * orders on the loop thread, and the transfer thread runs them one by one. The two sides join a
 * communicator of two, compare their orders, and move the blocks in chunks. Finished orders are
 * returned through `done`, and on_done runs on the loop thread. Invariants: an order is in one
 * list or is `running`. `mutex` guards lists and counters. A cancel increases `generation`, and
 * results of an older generation are dropped. Only the transfer thread uses the KV cache, and it
 * has stopped when `idle` is signalled. */
#include "worker/kv/transfer.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/thread.h"
#include "proto/codec/codec.h"
#include "worker/comm/comm.h"
#include "worker/comm/probe.h"
#include "worker/kv/chunks.h"

enum { TIMEOUT_MS = 10000, ORDER_ARENA_LIMIT = 4 << 20 };
/* LOOK_MS: interval of the sender's probes of a receiver that does not connect; PROBE_MS: time
 * limit of a probe */
enum { LOOK_MS = 500, PROBE_MS = 200 };
enum { SENDER = 0, RECEIVER = 1 };

struct order {
    struct order *next;
    struct arena arena;
    struct msg msg;
    struct kv_view view;
    uint64_t generation, after_step;
    enum status status;
    struct error error;
    uint64_t n_bytes, took_ns;
};
struct order_list {
    struct order *first, *last;
    uint32_t n;
};

struct kv_transfer {
    struct kv_transfer_options o;
    struct comm *comm;
    struct loop_wakeup *wakeup;
    pthread_t thread;
    bool started;
    /* order that finished last since the last cancel; may be NULL; loop thread only */
    struct order *answered;
    struct kv_chunk chunk; /* used by the transfer thread only */
    uint8_t *buffer;       /* KV_CHUNK_BYTES long; used by the transfer thread only */
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t wake, idle;
    struct order_list queue, done;
    struct order *running;
    uint64_t generation; /* number of cancels so far */
    uint64_t step_done, cancelled_ns;
    bool stop, ended;
};

static void list_push(struct order_list *l, struct order *o)
{
    o->next = NULL;
    if (l->last)
        l->last->next = o;
    else
        l->first = o;
    l->last = o;
    l->n++;
}

static struct order *list_pop(struct order_list *l)
{
    struct order *o = l->first;
    if (!o)
        return NULL;
    l->first = o->next;
    if (!l->first)
        l->last = NULL;
    l->n--;
    return o;
}

static void order_free(struct order *o)
{
    if (!o)
        return;
    arena_fini(&o->arena);
    mem_free(o);
}

static void list_free(struct order_list *l)
{
    for (struct order *o; (o = list_pop(l));)
        order_free(o);
}

/* ---- the transfer thread ---- */

static enum status meet(struct kv_transfer *t, const struct msg_kv_transfer *m, struct error *err)
{
    static const bool both[2] = {true, true};
    const struct str addresses[2] = {m->from_address, m->to_address};
    uint64_t until = clock_mono_ns() + t->o.timeout_ms * NS_PER_MS, now;
    /* The order's id serves as the epoch, since the two sides are in different replicas. */
    struct comm_group g = {.term_epoch = m->id,
                           .rank = m->sends ? SENDER : RECEIVER,
                           .n_ranks = 2,
                           .addresses = addresses,
                           .id = m->comm_id,
                           .links = both};
    /* The receiver connects and detects at once when no process listens. The sender only waits,
     * so it probes from time to time whether the receiver is still there. */
    while ((now = clock_mono_ns()) < until) {
        uint64_t left_ms = (until - now + NS_PER_MS - 1) / NS_PER_MS;
        g.timeout_ms = (uint32_t)(m->sends && left_ms > LOOK_MS ? LOOK_MS : left_ms);
        enum status s = comm_join(t->comm, &g, err);
        struct error own;
        if (s != STATUS_TIMEOUT || g.timeout_ms == left_ms)
            return s;
        if (comm_probe(m->to_address, PROBE_MS, &own) == STATUS_IO) {
            *err = own;
            return STATUS_IO;
        }
    }
    return error_set(err, STATUS_TIMEOUT,
                     "the other rank did not connect in time. See that worker's log");
}

/* Checks that both sides are connected and have the same order. */
static enum status agree(struct kv_transfer *t, struct order *o, uint64_t n_bytes,
                         struct error *err)
{
    struct terms {
        uint64_t id, n_blocks, n_bytes;
    } terms[2];
    const struct msg_kv_transfer *m = &o->msg.kv_transfer;
    uint32_t own = m->sends ? SENDER : RECEIVER;
    terms[own] = (struct terms){htole64(m->id), htole64(m->blocks.n), htole64(n_bytes)};
    const struct comm_part parts[2] = {{&terms[0], sizeof terms[0]}, {&terms[1], sizeof terms[1]}};
    TRY(comm_all_gather(t->comm, parts, err));
    const struct terms *theirs = &terms[!own];
    if (memcmp(theirs, &terms[own], sizeof *theirs) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the other rank moves %llu blocks with %llu bytes in total, but this rank "
                     "moves %u with %llu bytes. Report this bug",
                     (unsigned long long)le64toh(theirs->n_blocks),
                     (unsigned long long)le64toh(theirs->n_bytes), m->blocks.n,
                     (unsigned long long)n_bytes);
}

static void pack(const struct kv_chunk *c, uint8_t *buffer)
{
    for (uint32_t i = 0; i < c->n_segments; i++) {
        memcpy(buffer, c->segments[i].ptr, c->segments[i].n_bytes);
        buffer += c->segments[i].n_bytes;
    }
}

static void unpack(const struct kv_chunk *c, const uint8_t *buffer)
{
    for (uint32_t i = 0; i < c->n_segments; i++) {
        memcpy(c->segments[i].ptr, buffer, c->segments[i].n_bytes);
        buffer += c->segments[i].n_bytes;
    }
}

/* Moves blocks in host memory. Large pieces are sent and received directly from and to the
 * cache, small ones through the buffer. */
static enum status move_here(struct kv_transfer *t, struct kv_walk *w, bool sends,
                             struct error *err)
{
    struct kv_chunk *c = &t->chunk;
    while (kv_walk_next(w, c)) {
        bool direct = c->n_segments == 1;
        uint8_t *data = direct ? c->segments[0].ptr : t->buffer;
        if (sends && !direct)
            pack(c, data);
        TRY(comm_broadcast(t->comm, SENDER, data, c->n_bytes, err));
        if (!sends && !direct)
            unpack(c, data);
    }
    return STATUS_OK;
}

static enum status fetch(struct kv_copies *k, const struct kv_chunk *c, uint8_t *buffer,
                         struct error *err)
{
    for (uint32_t i = 0; i < c->n_segments; i++) {
        TRY(k->to_host(k, buffer, c->segments[i].ptr, c->segments[i].n_bytes, err));
        buffer += c->segments[i].n_bytes;
    }
    return STATUS_OK;
}

static enum status put(struct kv_copies *k, const struct kv_chunk *c, const uint8_t *buffer,
                       struct error *err)
{
    for (uint32_t i = 0; i < c->n_segments; i++) {
        TRY(k->to_device(k, c->segments[i].ptr, buffer, c->segments[i].n_bytes, err));
        buffer += c->segments[i].n_bytes;
    }
    return STATUS_OK;
}

/* Sends blocks of a device. While one chunk is sent, the next chunk is copied from the device. */
static enum status send_device(struct kv_transfer *t, struct kv_walk *w, struct kv_copies *k,
                               struct error *err)
{
    struct kv_chunk *c = &t->chunk;
    bool more = kv_walk_next(w, c);
    if (more)
        TRY(fetch(k, c, k->buffers[0], err));
    for (uint32_t i = 0; more; i++) {
        size_t n_bytes = c->n_bytes;
        TRY(k->sync(k, err));
        more = kv_walk_next(w, c);
        if (more)
            TRY(fetch(k, c, k->buffers[(i + 1) % 2], err));
        TRY(comm_broadcast(t->comm, SENDER, k->buffers[i % 2], n_bytes, err));
    }
    return STATUS_OK;
}

static enum status receive_device(struct kv_transfer *t, struct kv_walk *w, struct kv_copies *k,
                                  struct error *err)
{
    struct kv_chunk *c = &t->chunk;
    for (uint32_t i = 0; kv_walk_next(w, c); i++) {
        TRY(comm_broadcast(t->comm, SENDER, k->buffers[i % 2], c->n_bytes, err));
        TRY(k->sync(k, err)); /* from here on the other buffer is free, and this one may be used */
        TRY(put(k, c, k->buffers[i % 2], err));
    }
    return k->sync(k, err);
}

static enum status move_blocks(struct kv_transfer *t, struct order *o, struct kv_walk *w,
                               struct error *err)
{
    bool sends = o->msg.kv_transfer.sends;
    struct kv_copies *k = o->view.copies;
    if (!k)
        return move_here(t, w, sends, err);
    enum status s = sends ? send_device(t, w, k, err) : receive_device(t, w, k, err);
    struct error own;
    if (s != STATUS_OK)
        /* the copies must end here, since none may use the blocks after this order */
        (void)!k->sync(k, &own);
    return s;
}

/* Waits until the receiver reports that it has all blocks. After that the sender may free its
 * blocks. */
static enum status confirm(struct kv_transfer *t, struct error *err)
{
    uint64_t word = 0;
    return comm_broadcast(t->comm, RECEIVER, &word, sizeof word, err);
}

static enum status transfer(struct kv_transfer *t, struct order *o, struct error *err)
{
    const struct msg_kv_transfer *m = &o->msg.kv_transfer;
    struct kv_walk w = {.view = &o->view, .groups = m->block_groups, .blocks = m->blocks};
    uint64_t n_bytes = kv_walk_bytes(&w);
    TRY(meet(t, m, err));
    uint64_t begin_ns = clock_mono_ns();
    TRY(agree(t, o, n_bytes, err));
    TRY(move_blocks(t, o, &w, err));
    TRY(confirm(t, err));
    o->n_bytes = n_bytes;
    o->took_ns = clock_mono_ns() - begin_ns;
    return STATUS_OK;
}

static void run(struct kv_transfer *t, struct order *o)
{
    const struct msg_kv_transfer *m = &o->msg.kv_transfer;
    o->status = transfer(t, o, &o->error);
    if (o->status != STATUS_OK)
        (void)error_prefix(&o->error, o->status, "cannot move KV blocks %s " STR_FMT,
                           m->sends ? "to" : "from",
                           STR_ARG(m->sends ? m->to_address : m->from_address));
    comm_leave(t->comm);
}

/* Returns the first order when the step that it waits for is done, else NULL. The caller holds
 * the mutex. */
static struct order *next_order(const struct kv_transfer *t)
{
    struct order *o = t->queue.first;
    return o && o->after_step <= t->step_done ? o : NULL;
}

/* Runs one order or waits. The caller holds the mutex, which is released while the order runs. */
static void turn(struct kv_transfer *t)
{
    struct order *o = next_order(t);
    if (!o) {
        pthread_cond_wait(&t->wake, &t->mutex);
        return;
    }
    t->running = list_pop(&t->queue);
    comm_leave(t->comm); /* leaving clears an interrupt that came too late for the previous order */
    pthread_mutex_unlock(&t->mutex);
    run(t, o);
    pthread_mutex_lock(&t->mutex);
    t->running = NULL;
    list_push(&t->done, o);
    pthread_cond_broadcast(&t->idle);
    loop_wake(t->wakeup);
}

static void *transfer_main(void *arg)
{
    struct kv_transfer *t = arg;
    thread_begin("kv_transfer", 0);
    pthread_mutex_lock(&t->mutex);
    while (!t->stop)
        turn(t);
    t->ended = true;
    pthread_cond_broadcast(&t->idle);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ---- the loop thread ---- */

static void answer(struct kv_transfer *t, const struct order *o, bool again)
{
    const struct msg_kv_transfer *m = &o->msg.kv_transfer;
    const struct msg_kv_transferred done = {
        .term_epoch = m->term_epoch,
        .id = m->id,
        .status = o->status,
        .text = o->status == STATUS_OK ? str_from("") : str_from(o->error.text),
        .n_bytes = o->n_bytes,
        .took_ns = o->took_ns};
    t->o.on_done(t->o.ctx, &done, m->sends, again);
}

static void on_wake(void *ctx)
{
    struct kv_transfer *t = ctx;
    for (;;) {
        pthread_mutex_lock(&t->mutex);
        struct order *o = list_pop(&t->done);
        bool is_wanted = o && o->generation == t->generation;
        pthread_mutex_unlock(&t->mutex);
        if (!o)
            return;
        if (!is_wanted) {
            order_free(o);
            continue;
        }
        order_free(t->answered);
        t->answered = o;
        answer(t, o, false);
    }
}

static void init_locks(struct kv_transfer *t)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_cond_init(&t->idle, &attr);
    pthread_condattr_destroy(&attr);
}

enum status kv_transfer_start(struct loop *l, const struct kv_transfer_options *o,
                              struct kv_transfer **out, struct error *err)
{
    struct kv_transfer *t = mem_zalloc(sizeof *t);
    t->o = *o;
    t->o.timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    init_locks(t);
    t->wakeup = loop_wakeup_new(l, on_wake, t);
    const struct comm_options co = {.host = o->host,
                                    .port = o->port,
                                    .timeout_ms = t->o.timeout_ms,
                                    .no_shared_memory = o->no_shared_memory};
    enum status s = comm_open(&co, &t->comm, err);
    if (s == STATUS_OK && !(t->buffer = mem_try_alloc(KV_CHUNK_BYTES)))
        s = error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for the buffer of KV transfers. Free memory on this machine");
    int rc = s == STATUS_OK ? pthread_create(&t->thread, NULL, transfer_main, t) : 0;
    if (rc != 0)
        s = error_set(err, STATUS_LIMIT, "cannot start the thread of KV transfers: %s",
                      strerror(rc));
    t->started = s == STATUS_OK;
    if (s != STATUS_OK) {
        kv_transfer_stop(t);
        return s;
    }
    *out = t;
    return STATUS_OK;
}

enum status kv_transfer_listen(struct kv_transfer *t, const char *host, struct error *err)
{
    return comm_listen(t->comm, host, err);
}

const char *kv_transfer_address(const struct kv_transfer *t)
{
    return comm_address(t->comm);
}

/* Returns true when the order runs, waits or is done. The caller holds the mutex. */
static bool is_known(const struct kv_transfer *t, uint64_t id)
{
    if (t->running && t->running->generation == t->generation &&
        t->running->msg.kv_transfer.id == id)
        return true;
    for (const struct order *o = t->queue.first; o; o = o->next)
        if (o->msg.kv_transfer.id == id)
            return true;
    for (const struct order *o = t->done.first; o; o = o->next)
        if (o->generation == t->generation && o->msg.kv_transfer.id == id)
            return true;
    return false;
}

static enum status make_order(const struct msg_kv_transfer *m, const struct kv_transfer_bounds *b,
                              struct order **out, struct error *err)
{
    const struct kv_walk w = {.view = b->view, .groups = m->block_groups, .blocks = m->blocks};
    if (m->comm_id.n != COMM_ID_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the communicator's id has %u bytes instead of %u. Report this bug",
                         m->comm_id.n, COMM_ID_BYTES);
    TRY(kv_walk_check(&w, b->n_blocks, err));
    struct order *o = mem_zalloc(sizeof *o);
    arena_init(&o->arena, ORDER_ARENA_LIMIT);
    o->view = *b->view;
    o->after_step = b->after_step;
    if (msg_copy(&(struct msg){.type = MSG_KV_TRANSFER, .kv_transfer = *m}, &o->arena, &o->msg) !=
        STATUS_OK) {
        order_free(o);
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a list of %u blocks. Free memory on this machine",
                         m->blocks.n);
    }
    *out = o;
    return STATUS_OK;
}

enum status kv_transfer_push(struct kv_transfer *t, const struct msg_kv_transfer *m,
                             const struct kv_transfer_bounds *b, struct error *err)
{
    struct order *o;
    if (t->answered && t->answered->msg.kv_transfer.id == m->id) {
        answer(t, t->answered, true);
        return STATUS_OK;
    }
    TRY(make_order(m, b, &o, err));
    enum status s = STATUS_OK;
    pthread_mutex_lock(&t->mutex);
    bool known = is_known(t, m->id);
    if (!known && t->queue.n >= KV_TRANSFER_QUEUE_MAX)
        s = error_set(
            err, STATUS_LIMIT,
            "cannot queue the KV transfer: %u transfers already wait on this rank, the maximum",
            t->queue.n);
    if (!known && s == STATUS_OK) {
        o->generation = t->generation;
        list_push(&t->queue, o);
        o = NULL;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->mutex);
    order_free(o);
    return s;
}

void kv_transfer_step_done(struct kv_transfer *t, uint64_t step)
{
    pthread_mutex_lock(&t->mutex);
    t->step_done = step;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
}

void kv_transfer_repeat(struct kv_transfer *t)
{
    if (t->answered)
        answer(t, t->answered, true);
}

/* ---- end ---- */

/* Returns true while a cancelled order still runs. The caller holds the mutex. */
static bool is_ending(const struct kv_transfer *t)
{
    return t->running && t->running->generation < t->generation;
}

void kv_transfer_cancel(struct kv_transfer *t)
{
    order_free(t->answered);
    t->answered = NULL;
    pthread_mutex_lock(&t->mutex);
    if (t->running && !is_ending(t))
        t->cancelled_ns = clock_mono_ns();
    t->generation++;
    t->step_done = 0;
    list_free(&t->queue);
    if (t->running)
        comm_interrupt(t->comm);
    pthread_mutex_unlock(&t->mutex);
}

void kv_transfer_await(struct kv_transfer *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    while (is_ending(t))
        pthread_cond_wait(&t->idle, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
}

bool kv_transfer_is_stuck(const struct kv_transfer *t, uint64_t timeout_ns)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&t->mutex;
    pthread_mutex_lock(mutex);
    bool stuck = is_ending(t) && clock_mono_ns() - t->cancelled_ns > timeout_ns;
    pthread_mutex_unlock(mutex);
    return stuck;
}

bool kv_transfer_end(struct kv_transfer *t, uint32_t timeout_ms)
{
    uint64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    const struct timespec at = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    kv_transfer_cancel(t);
    if (!t->started)
        return true;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->wake);
    while (!t->ended && clock_mono_ns() < until)
        pthread_cond_timedwait(&t->idle, &t->mutex, &at);
    bool ended = t->ended;
    pthread_mutex_unlock(&t->mutex);
    if (ended) { /* a process that then ends at once leaves no thread behind */
        pthread_join(t->thread, NULL);
        t->started = false;
    }
    return ended;
}

void kv_transfer_stop(struct kv_transfer *t)
{
    if (!t)
        return;
    (void)kv_transfer_end(t, 0);
    if (t->started)
        pthread_join(t->thread, NULL);
    list_free(&t->done);
    comm_close(t->comm);
    mem_free(t->buffer);
    loop_wakeup_free(t->wakeup);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->mutex);
    mem_free(t);
}
