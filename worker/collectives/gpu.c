/* Implements the collectives of a rank on a GPU, as a thin layer over `struct gpu_comm`
 * (kernels/cuda/comm).
 * The runner calls the vtable of collectives.h, which enqueues on the device's stream. The
 * executor joins, waits, drains and leaves through gpu.h. Errors of gpu_comm are passed on, and
 * the end of a group is logged once.
 * The device is borrowed; `comm` is owned until close. `said_overdue` belongs to the loop
 * thread, everything else to the compute thread while the group exists. */
#include "worker/collectives/gpu.h"

#include "common/base/log.h"
#include "common/base/mem.h"

/* NCCL_RECEIVE_BYTES and the next constants are the sizes of NCCL 2.18 to 2.28 with default
 * settings, for one peer in one channel. A receiver has queues of three protocols (4 MiB + 512
 * KiB + 4.7 MiB), a sender has flags. Each of these is an allocation of its own, in pages of 2
 * MiB. A Hopper GPU with NVLink has 24 channels for collectives and 32 for send and receive.
 * Other GPUs have fewer. */
#define NCCL_RECEIVE_BYTES (10ull << 20)
#define NCCL_SEND_BYTES    (2ull << 20)
enum { NCCL_CHANNELS = 24, NCCL_PAIR_CHANNELS = 32 };

struct collectives_gpu {
    struct collectives base;
    struct gpu_comm *comm;
    enum gpu_comm_end drained; /* how the last drain ended */
    struct error why;
    bool said_overdue; /* used by the loop thread only */
};

_Static_assert(COLLECTIVES_MAX_RANKS == GPU_COMM_MAX_RANKS, "one bound");

static struct gpu_comm *of(const struct collectives *c)
{
    return ((const struct collectives_gpu *)c)->comm;
}

static uint32_t position(const struct gpu_comm *g)
{
    return g->group.stage * g->group.tp + g->group.rank;
}

static struct collectives_place place(const struct collectives *c)
{
    const struct gpu_comm_group *g = &of(c)->group;
    if (g->tp == 0)
        return (struct collectives_place){.n_ranks = 1};
    return (struct collectives_place){
        .rank = g->rank, .n_ranks = g->tp, .before = g->stage > 0, .after = g->stage + 1 < g->pp};
}

static enum status all_reduce(struct collectives *c, void *x, size_t n, struct error *err)
{
    return of(c)->ops->sum_bf16(of(c), x, n, err);
}

static enum status all_reduce_floats(struct collectives *c, float *x, size_t n, struct error *err)
{
    return of(c)->ops->sum_floats(of(c), x, n, err);
}

static enum status gather_columns(struct collectives *c, const struct collectives_columns *m,
                                  struct error *err)
{
    uint32_t first[GPU_COMM_MAX_RANKS], n[GPU_COMM_MAX_RANKS];
    for (uint32_t r = 0; r < of(c)->group.tp; r++) {
        first[r] = m->of[r].first;
        n[r] = m->of[r].n;
    }
    const struct gpu_comm_columns own = {m->x, m->n_rows, m->stride, first, n};
    return of(c)->ops->gather(of(c), &own, err);
}

static enum status broadcast(struct collectives *c, uint32_t root, void *data, size_t n_bytes,
                             struct error *err)
{
    return of(c)->ops->broadcast(of(c), root, data, n_bytes, err);
}

static enum status take(struct collectives *c, void *data, size_t n_bytes, struct error *err)
{
    return of(c)->ops->receive(of(c), position(of(c)) - of(c)->group.tp, data, n_bytes, err);
}

static enum status give(struct collectives *c, void *data, size_t n_bytes, struct error *err)
{
    return of(c)->ops->send(of(c), position(of(c)) + of(c)->group.tp, data, n_bytes, err);
}

static enum status wait_done(struct collectives *c, struct error *err)
{
    return of(c)->ops->wait(of(c), NULL, NULL, err);
}

static const struct collectives_ops gpu_collectives_ops = {.place = place,
                                                           .all_reduce = all_reduce,
                                                           .all_reduce_floats = all_reduce_floats,
                                                           .gather_columns = gather_columns,
                                                           .broadcast = broadcast,
                                                           .take = take,
                                                           .give = give,
                                                           .wait = wait_done};

/* The bytes follow from the number of neighbours in a ring and in a tree (on one host a chain,
 * with a neighbour on each side). With stages there is also a neighbour in the previous and one
 * in the next stage. The communicator of a stage shares all of these buffers. */
uint64_t collectives_gpu_bytes(uint32_t tp, uint32_t pp)
{
    uint32_t n = tp * pp, n_neighbours = 1 + (n > 2 ? 2 : 1);
    uint64_t pair = NCCL_RECEIVE_BYTES + (pp > 2 ? NCCL_SEND_BYTES : 0);
    if (n <= 1)
        return 0;
    return (NCCL_RECEIVE_BYTES + NCCL_SEND_BYTES) * NCCL_CHANNELS * n_neighbours +
           (pp > 1 ? pair * NCCL_PAIR_CHANNELS : 0) + (tp > 1 ? GPU_COMM_ONE_SHOT_BYTES : 0);
}

enum status collectives_gpu_open(const struct collectives_gpu_options *o,
                                 struct collectives_gpu **out, struct error *err)
{
    const struct gpu_comm_options g = {.library = o->library,
                                       .wait_timeout_ms = o->wait_timeout_ms,
                                       .leave_timeout_ms = o->leave_timeout_ms,
                                       .no_one_shot = o->no_one_shot,
                                       .progress = o->progress};
    struct gpu_comm *comm;
    TRY(cuda_comm_open(o->device, &g, &comm, err));
    *out = mem_zalloc(sizeof **out);
    **out = (struct collectives_gpu){.base = {&gpu_collectives_ops}, .comm = comm};
    log_info("nccl_loaded", "library=%s", log_quote(comm->ops->describe(comm)));
    return STATUS_OK;
}

void collectives_gpu_close(struct collectives_gpu *c)
{
    if (!c)
        return;
    c->comm->ops->close(c->comm);
    mem_free(c);
}

struct collectives *collectives_gpu_base(struct collectives_gpu *c)
{
    return c ? &c->base : NULL;
}

enum status collectives_gpu_make_id(struct collectives_gpu *c, uint8_t *out, struct error *err)
{
    return c->comm->ops->make_id(c->comm, out, err);
}

enum status collectives_gpu_join(struct collectives_gpu *c, const struct comm_place *p,
                                 struct bytes id, struct error *err)
{
    const struct gpu_comm_group g = {
        .tp = p->tp, .pp = p->pp, .rank = p->rank, .stage = p->stage, .id = id.ptr, .n_id = id.n};
    TRY(c->comm->ops->join(c->comm, &g, err));
    if (g.tp > 1 && c->comm->one_shot_bytes > 0)
        log_info("one_shot_sums", "max_bytes=%llu", (unsigned long long)c->comm->one_shot_bytes);
    else if (g.tp > 1)
        log_info("one_shot_sums", "max_bytes=0 reason=%s", log_quote(c->comm->one_shot_why));
    return STATUS_OK;
}

enum status collectives_gpu_wait(struct collectives_gpu *c,
                                 enum status (*done)(void *, struct error *), void *ctx,
                                 struct error *err)
{
    return c->comm->ops->wait(c->comm, done, ctx, err);
}

static enum status at_once(void *ctx, struct error *err)
{
    return STATUS_OK;
}

enum status collectives_gpu_look(struct collectives_gpu *c, struct error *err)
{
    return c->comm->ops->wait(c->comm, at_once, NULL, err);
}

void collectives_gpu_interrupt(struct collectives_gpu *c)
{
    c->comm->ops->interrupt(c->comm);
}

bool collectives_gpu_overdue(struct collectives_gpu *c)
{
    if (!c->comm->ops->overdue(c->comm))
        return false;
    if (!c->said_overdue)
        log_error("collective_abort_failed", "error=%s",
                  log_quote("the abort of the collectives does not end, and the compute thread is "
                            "stuck; the process exits so that it can be restarted"));
    c->said_overdue = true;
    return true;
}

bool collectives_gpu_drain(struct collectives_gpu *c)
{
    c->drained = c->comm->ops->drain(c->comm, &c->why);
    return c->drained == GPU_COMM_LEFT;
}

enum status collectives_gpu_leave(struct collectives_gpu *c, struct error *err)
{
    uint32_t ms = 0;
    bool was_joined = c->comm->group.tp > 0;
    enum gpu_comm_end end = c->drained; /* a device that did not drain cannot leave */
    if (end == GPU_COMM_LEFT)
        end = c->comm->ops->leave(c->comm, &ms, &c->why);
    if (end == GPU_COMM_LEFT) {
        if (was_joined)
            log_info("collective_aborted", "ms=%u", ms);
        return STATUS_OK;
    }
    bool stuck = end == GPU_COMM_STUCK;
    log_error(stuck ? "collective_abort_failed" : "device_lost", "ms=%u error=%s", ms,
              log_quote(c->why.text));
    return error_set(err, STATUS_IO, "%s: %.400s",
                     stuck ? "the abort of the collectives failed" : "the GPU is lost",
                     c->why.text);
}
