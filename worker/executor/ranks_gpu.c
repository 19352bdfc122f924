/* Implements a replica on GPUs, which uses NCCL on the device's stream (collectives/gpu.h). */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/executor/device_loss.h"
#include "worker/executor/ranks.h"
#include "worker/runner/record.h"

/* ---- ids to all ranks ---- */

static enum status tell_part(struct executor_model *x, void *data, size_t n_bytes,
                             struct error *err)
{
    struct collectives *c = collectives_gpu_base(x->ranks.gpus);
    struct device *d = x->engine->device;
    if (executor_is_sampling_rank(x))
        d->ops->memory.write(d, x->ranks.tell, data, n_bytes);
    TRY(c->ops->broadcast(c, x->ranks.comms.sampling_rank, x->ranks.tell, n_bytes, err));
    TRY(c->ops->wait(c, err));
    return d->ops->memory.read(d, data, x->ranks.tell, n_bytes, err);
}

static enum status tell(struct executor_model *x, void *data, size_t n_bytes, struct error *err)
{
    uint8_t *at = data;
    for (size_t n; n_bytes > 0; at += n, n_bytes -= n) {
        n = n_bytes < EXECUTOR_TELL_BYTES ? n_bytes : EXECUTOR_TELL_BYTES;
        TRY(tell_part(x, at, n, err));
    }
    return STATUS_OK;
}

static enum status share_last(struct executor_model *x, uint32_t n_slots, struct error *err)
{
    struct collectives *c = collectives_gpu_base(x->ranks.gpus);
    return c->ops->broadcast(c, x->ranks.comms.sampling_rank, x->device_sampler->last,
                             n_slots * sizeof *x->device_sampler->last, err);
}

/* ---- life ---- */

static enum status open_gpus(const struct worker_options *o, struct executor_model *x,
                             struct error *err)
{
    struct device *d = x->found.device;
    const struct collectives_gpu_options g = {.device = d,
                                              .library = o->nccl_library,
                                              .no_one_shot = o->no_one_shot,
                                              .wait_timeout_ms =
                                                  (uint32_t)(x->loss.stuck_ns / NS_PER_MS),
                                              .progress = &x->base.progress};
    TRY(collectives_gpu_open(&g, &x->ranks.gpus, err));
    x->ranks.comms.sampling_rank = (x->place.pp - 1) * x->place.tp;
    x->ranks.tell = d->ops->memory.alloc(d, EXECUTOR_TELL_BYTES);
    return x->ranks.tell ? STATUS_OK
                         : error_set(err, STATUS_NO_MEMORY,
                                     "cannot allocate %d bytes on the device: its memory is full. "
                                     "Lower --gpu-memory-utilization",
                                     EXECUTOR_TELL_BYTES);
}

/* Agrees with the other ranks: either all ranks record passes or none does. NCCL requires that a
 * collective is in a graph on each rank or on none, and padded passes have other sizes. One rank
 * that is eager, or whose device refused to record, turns recording off for all. These first
 * calls also make NCCL connect. */
static enum status agree_on_records(struct executor_model *x, struct error *err)
{
    enum { VOTE_BYTES = 16 };
    uint8_t votes[COLLECTIVES_MAX_RANKS][VOTE_BYTES] = {{0}}, *at = x->ranks.tell;
    _Static_assert(sizeof votes <= EXECUTOR_TELL_BYTES, "room for them");
    struct collectives *c = collectives_gpu_base(x->ranks.gpus);
    struct device *d = x->engine->device;
    uint32_t own = comm_place_position(&x->place), n = comm_place_world(&x->place);
    bool is_eager = false;
    votes[own][0] = x->engine->runner_setup.is_eager || x->ranks.refused_record;
    d->ops->memory.write(d, x->ranks.tell, votes, n * sizeof votes[0]);
    for (uint32_t r = 0; r < n; r++)
        TRY(c->ops->broadcast(c, r, at + r * sizeof votes[0], VOTE_BYTES, err));
    TRY(c->ops->wait(c, err));
    TRY(d->ops->memory.read(d, votes, x->ranks.tell, n * sizeof votes[0], err));
    for (uint32_t r = 0; r < n; r++)
        is_eager = is_eager || votes[r][0] != 0;
    runner_set_eager(x->engine->runner, is_eager);
    if (is_eager && !x->engine->runner_setup.is_eager)
        log_info("graphs_off", "reason=%s",
                 log_quote("one rank of the replica cannot record passes, so no rank does"));
    return STATUS_OK;
}

static void leave(struct executor_model *x)
{
    struct error why;
    x->ranks.refused_record = x->ranks.refused_record || runner_refused_record(x->engine->runner);
    /* nothing runs now, and NCCL's abort waits for the end of recordings */
    if (collectives_gpu_drain(x->ranks.gpus))
        runner_drop_records(x->engine->runner);
    if (collectives_gpu_leave(x->ranks.gpus, &why) != STATUS_OK)
        executor_note_lost(x, &why);
    else
        /* the backend may still hold an error of the device, which does not come from NCCL */
        executor_await_device(x);
}

static enum status join(struct executor_model *x, const struct executor_comm *c, struct error *err)
{
    enum status s = collectives_gpu_join(x->ranks.gpus, &x->place, c->id, err);
    if (s == STATUS_OK)
        s = agree_on_records(x, err);
    if (s != STATUS_OK)
        leave(x);
    else
        log_info("joined", "rank=%u/%u stage=%u/%u transport=nccl", c->rank, c->tp, c->stage,
                 c->pp);
    return s;
}

static void close_gpus(struct executor_model *x)
{
    struct device *d = x->found.device;
    if (x->ranks.tell)
        d->ops->memory.release(d, x->ranks.tell, EXECUTOR_TELL_BYTES);
    collectives_gpu_close(x->ranks.gpus);
    x->ranks.tell = NULL;
    x->ranks.gpus = NULL;
}

static struct collectives *collectives(struct executor_model *x)
{
    return collectives_gpu_base(x->ranks.gpus);
}

static enum status make_id(struct executor_model *x, uint8_t *out, struct error *err)
{
    return collectives_gpu_make_id(x->ranks.gpus, out, err);
}

static void interrupt(struct executor_model *x)
{
    collectives_gpu_interrupt(x->ranks.gpus);
}

static enum status check(struct executor_model *x, struct error *err)
{
    struct collectives *c = collectives(x);
    return c->ops->wait(c, err);
}

static enum status look(struct executor_model *x, struct error *err)
{
    return collectives_gpu_look(x->ranks.gpus, err);
}

static enum status wait_until(struct executor_model *x,
                              enum status (*done)(void *ctx, struct error *err), void *ctx,
                              struct error *err)
{
    return collectives_gpu_wait(x->ranks.gpus, done, ctx, err);
}

static bool is_overdue(const struct executor_model *x)
{
    return collectives_gpu_overdue(x->ranks.gpus);
}

const struct ranks_ops ranks_gpu = {.id_bytes = GPU_COMM_ID_BYTES,
                                    .is_on_device = true,
                                    .open = open_gpus,
                                    .collectives = collectives,
                                    .make_id = make_id,
                                    .join = join,
                                    .leave = leave,
                                    .interrupt = interrupt,
                                    .check = check,
                                    .look = look,
                                    .tell = tell,
                                    .share_last = share_last,
                                    .wait = wait_until,
                                    .is_overdue = is_overdue,
                                    .close = close_gpus};
