/* Implements a replica on CPUs, which uses `struct comm` (docs/develop/comm.md), and a rank that
 * is alone. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/executor/ranks.h"

static enum status open_comm(const struct worker_options *o, struct executor_model *x,
                             struct error *err)
{
    /* NULL = the worker finds the address later */
    const struct comm_options co = {.host = o->comm_host,
                                    .port = (uint16_t)o->comm_port,
                                    .timeout_ms = (uint32_t)(x->loss.stuck_ns / NS_PER_MS),
                                    .progress = &x->base.progress,
                                    .no_shared_memory = o->no_shared_memory};
    TRY(comm_open(&co, &x->ranks.comm, err));
    if (o->comm_host)
        log_info("comm_listening", "address=%s", comm_address(x->ranks.comm));
    collectives_comm_init(&x->ranks.collectives, &x->ranks.comms);
    return comm_stages_open(x->ranks.comm, x->place.tp, x->place.pp, &x->ranks.comms, err);
}

static struct collectives *collectives(struct executor_model *x)
{
    return &x->ranks.collectives.base;
}

static struct str address(const struct executor_model *x)
{
    return str_from(comm_address(x->ranks.comm));
}

static enum status listen_at(struct executor_model *x, const char *host, struct error *err)
{
    TRY(comm_listen(x->ranks.comm, host, err));
    log_info("comm_listening", "address=%s", comm_address(x->ranks.comm));
    return STATUS_OK;
}

static enum status make_id(struct executor_model *x, uint8_t *out, struct error *err)
{
    comm_make_id(out);
    return STATUS_OK;
}

/* Pins threads when the ranks of one host use all its CPUs: each rank and each thread gets its
 * own CPUs. Ranks of different stages are not spread, because they work in turns. */
static void spread(struct executor_model *x, struct comm_here here)
{
    if (x->device->kind == DEVICE_CPU && x->place.pp == 1)
        cpu_device_spread(x->engine->device, here.i, here.n);
}

static enum status join(struct executor_model *x, const struct executor_comm *c, struct error *err)
{
    const struct comm_group g = {.term_epoch = c->term_epoch,
                                 .rank = comm_place_position(&x->place),
                                 .n_ranks = comm_place_world(&x->place),
                                 .addresses = c->addresses,
                                 .id = c->id};
    enum status s = comm_stages_join(&x->ranks.comms, &x->place, &g, err);
    if (s != STATUS_OK) {
        comm_leave(x->ranks.comm);
        return s;
    }
    spread(x, comm_here(x->ranks.comm));
    log_info("joined", "rank=%u/%u stage=%u/%u transport=%s", c->rank, c->tp, c->stage, c->pp,
             log_quote(comm_transport(x->ranks.comm)));
    return STATUS_OK;
}

static void leave(struct executor_model *x)
{
    spread(x, (struct comm_here){0, 1});
    comm_leave(x->ranks.comm);
}

static void interrupt(struct executor_model *x)
{
    comm_interrupt(x->ranks.comm);
}

static enum status check(struct executor_model *x, struct error *err)
{
    return comm_check(x->ranks.comm, err);
}

static enum status tell(struct executor_model *x, void *data, size_t n_bytes, struct error *err)
{
    struct collectives *c =
        /* `collectives` measures the time in calls, which this rank spends waiting and not
         * working */
        &x->ranks.collectives.base;
    return c->ops->broadcast(c, x->ranks.comms.sampling_rank, data, n_bytes, err);
}

static void close_comm(struct executor_model *x)
{
    comm_close(x->ranks.comm);
    x->ranks.comm = NULL;
}

const struct ranks_ops ranks_cpu = {.id_bytes = COMM_ID_BYTES,
                                    .open = open_comm,
                                    .collectives = collectives,
                                    .listen = listen_at,
                                    .address = address,
                                    .make_id = make_id,
                                    .join = join,
                                    .leave = leave,
                                    .interrupt = interrupt,
                                    .check = check,
                                    .tell = tell,
                                    .close = close_comm};

static enum status join_nobody(struct executor_model *x, const struct executor_comm *c,
                               struct error *err)
{
    spread(x, (struct comm_here){0, 1});
    return STATUS_OK;
}

const struct ranks_ops ranks_alone = {
    .id_bytes = COMM_ID_BYTES, .make_id = make_id, .join = join_nobody};
