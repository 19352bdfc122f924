/* Implements a rank's communicators over NCCL: joining, leaving and waiting. The worker's
 * compute thread calls them through struct gpu_comm_ops. There is one communicator of all ranks.
 * With several stages of several ranks there is also one for the stage, split from the first so
 * that they share resources. The communicators are non-blocking, so no call waits inside NCCL.
 * The waiting thread polls a communicator, the interrupt and a deadline.
 *
 * Loss of a peer. When a peer is killed, a kernel on this device may spin for ever. Only an
 * abort ends such a kernel, and an abort itself may hang (NCCL #549, #863, #1013, #1777). The
 * interrupt therefore starts a second thread for the abort, since the compute thread may be
 * blocked in a launch by a full queue. All communicators are marked before the first is freed:
 * freeing waits for the device, on which the kernel of another communicator may spin.
 * Communicators share one mark (splitShare). From 2.22 on they are aborted in one group, which
 * marks all of them and then frees them. The wait for the abort ends at a deadline. The process
 * must then exit, which frees all resources. */
#include "kernels/cuda/comm/nccl_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

enum {
    JOIN_MS = 20000,
    WAIT_MS = 60000,
    LEAVE_MS = 5000,
    LATE_MS = 1000,              /* ms after its deadline at which leave counts as stuck */
    CALL_GRACE_MS = 200,         /* ms that a call in NCCL has to end before an abort */
    GROUP_ABORT_VERSION = 22200, /* first version in which ncclCommAbort works inside of a group */
    ASYNC_EVERY = 64             /* iterations of a wait between two checks of the communicators */
};

/* ---- joining ---- */

static enum status make_id(struct gpu_comm *base, uint8_t out[GPU_COMM_ID_BYTES], struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    struct nccl_id id;
    _Static_assert(sizeof id == GPU_COMM_ID_BYTES, "an id");
    TRY(nccl_check(c, c->api.get_unique_id(&id), "ncclGetUniqueId", err));
    memcpy(out, &id, sizeof id);
    return STATUS_OK;
}

static enum status check_group(const struct gpu_comm_group *g, struct error *err)
{
    if (g->tp == 0 || g->pp == 0 || g->tp > GPU_COMM_MAX_RANKS || g->pp > GPU_COMM_MAX_RANKS ||
        g->tp * g->pp > GPU_COMM_MAX_RANKS || g->rank >= g->tp || g->stage >= g->pp)
        return error_set(err, STATUS_INVALID,
                         "rank %u of %u in stage %u of %u is invalid: a replica has at most %u "
                         "ranks. Report this bug",
                         g->rank, g->tp, g->stage, g->pp, GPU_COMM_MAX_RANKS);
    if (g->n_id != GPU_COMM_ID_BYTES)
        return error_set(
            err, STATUS_INVALID,
            "the communicator id has %u bytes, but NCCL's ids have %u. Report this bug", g->n_id,
            GPU_COMM_ID_BYTES);
    return STATUS_OK;
}

static enum status join_all(struct nccl_comm *c, const struct gpu_comm_group *g, struct error *err)
{
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = 0,
                                 .cga_cluster_size = NCCL_CONFIG_UNSET,
                                 .min_ctas = NCCL_CONFIG_UNSET,
                                 .max_ctas = NCCL_CONFIG_UNSET,
                                 .split_share = 1};
    struct nccl_id id;
    memcpy(&id, g->id, sizeof id);
    TRY(nccl_enter(c, err));
    int result = c->api.comm_init_rank_config(&c->all, (int)(g->tp * g->pp), id,
                                              (int)(g->stage * g->tp + g->rank), &config);
    atomic_store(&c->has_comms, c->all != NULL);
    nccl_exit(c);
    return nccl_settle(c, &c->all, result, "ncclCommInitRankConfig", c->o.join_timeout_ms, err);
}

/* Splits off the stage's communicator. The new communicator is NULL until the split is over. The
 * old communicator is in progress until then. */
static enum status join_stage(struct nccl_comm *c, const struct gpu_comm_group *g,
                              struct error *err)
{
    if (g->pp == 1)
        c->stage = c->all;
    if (g->pp == 1 || g->tp == 1)
        return STATUS_OK;
    TRY(nccl_enter(c, err));
    int result = c->api.comm_split(c->all, (int)g->stage, (int)g->rank, &c->stage, NULL);
    nccl_exit(c);
    TRY(nccl_settle(c, &c->all, result, "ncclCommSplit", c->o.join_timeout_ms, err));
    return nccl_settle(c, &c->stage, NCCL_IN_PROGRESS, "ncclCommSplit", c->o.join_timeout_ms, err);
}

static enum status join(struct gpu_comm *base, const struct gpu_comm_group *g, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    if (atomic_load(&c->interrupted))
        return nccl_interrupted(err);
    if (atomic_load(&c->has_comms))
        return error_set(err, STATUS_INVALID,
                         "the communicator still belongs to the previous replica. Report this bug");
    TRY(check_group(g, err));
    /* A communicator belongs to the calling thread's current device. This call makes the
     * stream's device the current device. */
    enum status s = gpu_stream_query(c->o.stream, err);
    if (s == STATUS_OK || s == STATUS_AGAIN)
        s = join_all(c, g, err);
    if (s == STATUS_OK)
        s = join_stage(c, g, err);
    if (s == STATUS_OK) {
        base->group = *g;
        base->group.id = NULL;
        base->group.n_id = 0;
        s = nccl_oneshot_join(c, g, err);
    }
    if (s == STATUS_OK)
        return s;
    base->group = (struct gpu_comm_group){0};
    return error_prefix(err, s, "joining as position %u of %u", g->stage * g->tp + g->rank,
                        g->tp * g->pp);
}

/* ---- aborting ---- */

/* Waits for a call inside NCCL to end, which is normally immediate. A call that is stuck returns
 * only when communicators are marked, so the wait has a time limit. */
static void await_calls(struct nccl_comm *c)
{
    uint64_t until = clock_mono_ns() + CALL_GRACE_MS * NS_PER_MS;
    for (uint32_t n = 0; atomic_load(&c->in_call); n++) {
        if (clock_mono_ns() > until && atomic_load(&c->has_comms))
            return;
        nccl_relax(n);
    }
}

static int abort_all(struct nccl_comm *c)
{
    struct nccl_native *const comms[] = {c->stage == c->all ? NULL : c->stage, c->all};
    bool group = c->version >= GROUP_ABORT_VERSION;
    int first = group ? c->api.group_start() : NCCL_SUCCESS;
    for (uint32_t i = 0; i < 2; i++) {
        int result = comms[i] ? c->api.comm_abort(comms[i]) : NCCL_SUCCESS;
        first = first == NCCL_SUCCESS ? result : first;
    }
    int result = group ? c->api.group_end() : NCCL_SUCCESS;
    return first == NCCL_SUCCESS ? result : first;
}

/* Aborts the communicators. They must not be used any more, even if the abort failed. */
static void abort_comms(struct nccl_comm *c)
{
    struct error err = {0};
    await_calls(c);
    /* An abort that is in progress counts as failed, because its communicator can no longer be
     * queried. */
    enum status s = nccl_check(c, c->all ? abort_all(c) : NCCL_SUCCESS, "ncclCommAbort", &err);
    c->all = c->stage = NULL;
    atomic_store(&c->has_comms, false);
    pthread_mutex_lock(&c->mutex);
    c->abort_failed = s != STATUS_OK;
    snprintf(c->abort_text, sizeof c->abort_text, "%.250s",
             s == STATUS_AGAIN ? "ncclCommAbort stays in progress and does not end" : err.text);
    c->abort_state = ABORT_DONE;
    atomic_store(&c->abort_ended, true);
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

static void *abort_main(void *arg)
{
    struct nccl_comm *c = arg;
    pthread_mutex_lock(&c->mutex);
    while (!c->ends) {
        if (c->abort_state != ABORT_WANTED) {
            pthread_cond_wait(&c->wake, &c->mutex);
            continue;
        }
        pthread_mutex_unlock(&c->mutex);
        abort_comms(c);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static void interrupt(struct gpu_comm *base)
{
    struct nccl_comm *c = nccl_of(base);
    pthread_mutex_lock(&c->mutex);
    atomic_store(&c->interrupted, true);
    nccl_oneshot_interrupt(&c->oneshot);
    if (c->abort_state == ABORT_NONE) {
        c->abort_state = ABORT_WANTED;
        atomic_store(&c->abort_began_ns, clock_mono_ns());
        pthread_cond_broadcast(&c->wake);
    }
    pthread_mutex_unlock(&c->mutex);
}

static bool overdue(const struct gpu_comm *base)
{
    const struct nccl_comm *c = (const struct nccl_comm *)base;
    uint64_t began = atomic_load(&c->abort_began_ns), now = clock_mono_ns();
    bool ended = atomic_load(&c->abort_ended) && !atomic_load(&c->unmapping);
    return began != 0 && !ended && now - began > (c->o.leave_timeout_ms + LATE_MS) * NS_PER_MS;
}

/* Returns the deadline of the abort that an interrupt began, but at least LATE_MS / 2 from now. */
static uint64_t deadline(struct nccl_comm *c)
{
    uint64_t at = atomic_load(&c->abort_began_ns) + c->o.leave_timeout_ms * NS_PER_MS;
    uint64_t soon = clock_mono_ns() + LATE_MS * NS_PER_MS / 2;
    return at > soon ? at : soon;
}

/* Waits for the abort until the deadline. Returns false when the abort has not ended by then. */
static bool await_abort(struct nccl_comm *c, uint64_t until)
{
    const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    pthread_mutex_lock(&c->mutex);
    while (c->abort_state != ABORT_DONE && clock_mono_ns() < until)
        (void)pthread_cond_timedwait(&c->wake, &c->mutex, &t);
    bool done = c->abort_state == ABORT_DONE;
    pthread_mutex_unlock(&c->mutex);
    return done;
}

/* Waits for the enqueued work, which ends when communicators are aborted. */
static enum gpu_comm_end await_stream(struct nccl_comm *c, uint64_t until, struct error *err)
{
    enum status s;
    uint64_t now = clock_mono_ns(); /* the clock is read before each query, as in nccl_settle() */
    for (uint32_t n = 0; (s = gpu_stream_query(c->o.stream, err)) == STATUS_AGAIN; n++) {
        if (now > until) {
            error_set(err, STATUS_TIMEOUT, "the GPU hangs: it did not finish its work in time");
            return GPU_COMM_STUCK;
        }
        nccl_bump(c);
        nccl_relax(n);
        now = clock_mono_ns();
    }
    return s == STATUS_OK ? GPU_COMM_LEFT : GPU_COMM_DEVICE_LOST;
}

static enum gpu_comm_end drain(struct gpu_comm *base, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    interrupt(base);
    return await_stream(c, deadline(c), err);
}

static enum gpu_comm_end leave(struct gpu_comm *base, uint32_t *ms, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    interrupt(base);
    uint64_t began = atomic_load(&c->abort_began_ns);
    uint64_t until = deadline(c);
    bool done = await_abort(c, until);
    *ms = (uint32_t)((clock_mono_ns() - began) / NS_PER_MS);
    if (!done) {
        error_set(err, STATUS_TIMEOUT,
                  "cannot end the collectives: ncclCommAbort did not return within %u ms", *ms);
        return GPU_COMM_STUCK;
    }
    enum gpu_comm_end end = await_stream(c, until, err);
    *ms = (uint32_t)((clock_mono_ns() - began) / NS_PER_MS);
    if (end == GPU_COMM_LEFT && c->abort_failed) {
        error_set(err, STATUS_IO, "%s", c->abort_text);
        end = GPU_COMM_STUCK;
    }
    if (end != GPU_COMM_LEFT)
        return end;
    /* a driver that hangs in the unmapping makes overdue() true */
    atomic_store(&c->unmapping, true);
    nccl_oneshot_leave(c);
    atomic_store(&c->unmapping, false);
    base->group = (struct gpu_comm_group){0};
    pthread_mutex_lock(&c->mutex);
    c->abort_state = ABORT_NONE;
    atomic_store(&c->abort_began_ns, 0);
    atomic_store(&c->abort_ended, false);
    atomic_store(&c->interrupted, false);
    pthread_mutex_unlock(&c->mutex);
    return GPU_COMM_LEFT;
}

/* ---- waiting ---- */

static enum status stream_done(void *ctx, struct error *err)
{
    return gpu_stream_query(ctx, err);
}

/* Checks the communicators for failures. A communicator that is in progress has not failed. */
static enum status look_at_comms(struct nccl_comm *c, struct error *err)
{
    struct nccl_native *const *const comms[] = {&c->all, &c->stage};
    uint32_t n = c->base.group.pp > 1 && c->base.group.tp > 1 ? 2 : 1;
    for (uint32_t i = 0; i < n; i++) {
        enum status s = nccl_look(c, comms[i], "a rank of the replica was lost", err);
        if (s != STATUS_OK && s != STATUS_AGAIN)
            return s;
    }
    return nccl_oneshot_check(c, err);
}

static enum status wait_done(struct gpu_comm *base, enum status (*done)(void *, struct error *),
                             void *ctx, struct error *err)
{
    struct nccl_comm *c = nccl_of(base);
    uint64_t until = clock_mono_ns() + c->o.wait_timeout_ms * NS_PER_MS;
    if (!done) {
        done = stream_done;
        ctx = c->o.stream;
    }
    for (uint32_t n = 1;; n++) {
        if (atomic_load(&c->interrupted))
            return nccl_interrupted(err);
        uint64_t now = clock_mono_ns();
        enum status s = done(ctx, err);
        bool look = n % ASYNC_EVERY == 0 || s != STATUS_AGAIN;
        if (look) /* work may also have ended because a peer is lost */
            TRY(look_at_comms(c, err));
        if (s != STATUS_AGAIN)
            return s;
        if (look && now > until)
            return error_set(
                err, STATUS_TIMEOUT,
                "the GPU did not finish its work within %u ms. See the logs of the other ranks",
                c->o.wait_timeout_ms);
        if (look)
            nccl_bump(c);
        nccl_relax(n);
    }
}

/* ---- life ---- */

static const char *describe(const struct gpu_comm *c)
{
    return ((const struct nccl_comm *)c)->text;
}

static void close_comm(struct gpu_comm *base)
{
    struct nccl_comm *c = nccl_of(base);
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->ends = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    nccl_oneshot_close(c);
    mem_free(c);
}

static const struct gpu_comm_ops nccl_comm_ops = {.describe = describe,
                                                  .make_id = make_id,
                                                  .join = join,
                                                  .interrupt = interrupt,
                                                  .overdue = overdue,
                                                  .drain = drain,
                                                  .leave = leave,
                                                  .close = close_comm,
                                                  .sum_bf16 = nccl_sum_bf16,
                                                  .sum_floats = nccl_sum_floats,
                                                  .gather = nccl_gather,
                                                  .broadcast = nccl_broadcast,
                                                  .send = nccl_send,
                                                  .receive = nccl_receive,
                                                  .wait = wait_done};

static uint32_t or_default(uint32_t ms, uint32_t otherwise)
{
    return ms ? ms : otherwise;
}

enum status gpu_comm_open(const struct gpu_comm_options *o, struct gpu_comm **out,
                          struct error *err)
{
    struct nccl_comm *c = mem_zalloc(sizeof *c);
    pthread_condattr_t attr;
    *out = NULL;
    c->base.ops = &nccl_comm_ops;
    c->o = *o;
    c->o.join_timeout_ms = or_default(o->join_timeout_ms, JOIN_MS);
    c->o.wait_timeout_ms = or_default(o->wait_timeout_ms, WAIT_MS);
    c->o.leave_timeout_ms = or_default(o->leave_timeout_ms, LEAVE_MS);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &attr);
    pthread_condattr_destroy(&attr);
    enum status s = nccl_load(c, o->library, err);
    if (s == STATUS_OK) {
        int rc = pthread_create(&c->thread, NULL, abort_main, c);
        c->has_thread = rc == 0;
        if (rc != 0)
            s = error_set(err, STATUS_LIMIT,
                          "cannot start the thread that aborts NCCL communicators: %s",
                          strerror(rc));
    }
    if (s != STATUS_OK) {
        close_comm(&c->base);
        return s;
    }
    *out = &c->base;
    return STATUS_OK;
}
