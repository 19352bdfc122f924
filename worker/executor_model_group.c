#include "worker/executor_model_group.h"

#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"

/* ---- ids to all ranks ---- */

static enum status tell_gpus(struct executor_model *x, void *data, size_t n_bytes,
                             struct error *err)
{
    struct collectives *c = collectives_gpu_base(x->gpus);
    struct device *d = x->engine->device;
    if (executor_draws(x))
        d->ops->write(d, x->tell, data, n_bytes);
    TRY(c->ops->broadcast(c, x->comms.drawer, x->tell, n_bytes, err));
    TRY(c->ops->wait(c, err));
    return d->ops->read(d, data, x->tell, n_bytes, err);
}

enum status executor_tell(struct executor_model *x, void *data, size_t n_bytes, struct error *err)
{
    uint8_t *at = data;
    if (x->comm)
        return comm_broadcast(x->comms.ids, x->comms.drawer, data, n_bytes, err);
    for (size_t n; x->gpus && n_bytes > 0; at += n, n_bytes -= n) {
        n = n_bytes < EXECUTOR_TELL_BYTES ? n_bytes : EXECUTOR_TELL_BYTES;
        TRY(tell_gpus(x, at, n, err));
    }
    return STATUS_OK;
}

enum status executor_share_last(struct executor_model *x, uint32_t n_slots, struct error *err)
{
    struct collectives *c = collectives_gpu_base(x->gpus);
    if (!c || n_slots == 0)
        return STATUS_OK;
    return c->ops->broadcast(c, x->comms.drawer, x->draws->last, n_slots * sizeof *x->draws->last,
                             err);
}

/* ---- ranks on GPUs ---- */

enum status executor_gpus_open(const struct worker_options *o, struct executor_model *x,
                               struct error *err)
{
    struct device *d = x->found.device;
    const struct collectives_gpu_options g = {.device = d,
                                              .library = o->nccl_library,
                                              .no_one_shot = o->no_one_shot,
                                              .wait_timeout_ms =
                                                  (uint32_t)(x->stuck_ns / NS_PER_MS),
                                              .progress = &x->base.progress};
    if (comm_place_world(&x->place) == 1)
        return STATUS_OK;
    TRY(collectives_gpu_open(&g, &x->gpus, err));
    x->comms.drawer = (x->place.pp - 1) * x->place.tp;
    x->tell = d->ops->alloc(d, EXECUTOR_TELL_BYTES);
    return x->tell ? STATUS_OK
                   : error_set(err, STATUS_NO_MEMORY, "the device has no %d bytes left",
                               EXECUTOR_TELL_BYTES);
}

static void note_lost(struct executor_model *x, const struct error *why)
{
    if (atomic_load(&x->is_lost))
        return;
    x->why_lost = *why;
    atomic_store(&x->is_lost, true);
}

/* All ranks record passes or none does: NCCL wants a collective to be of a graph on each of its
 * ranks or on none, and padded passes have other sizes. One that was told to be eager, or whose
 * device has refused, decides for all. The first calls connect, too. */
static enum status agree_on_records(struct executor_model *x, struct error *err)
{
    enum { VOTE_BYTES = 16 };
    uint8_t votes[COLLECTIVES_MAX_RANKS][VOTE_BYTES] = {{0}}, *at = x->tell;
    _Static_assert(sizeof votes <= EXECUTOR_TELL_BYTES, "room for them");
    struct collectives *c = collectives_gpu_base(x->gpus);
    struct device *d = x->engine->device;
    uint32_t own = comm_place_position(&x->place), n = comm_place_world(&x->place);
    bool is_eager = false;
    votes[own][0] = x->engine->runner_setup.is_eager || x->refused_record;
    d->ops->write(d, x->tell, votes, n * sizeof votes[0]);
    for (uint32_t r = 0; r < n; r++)
        TRY(c->ops->broadcast(c, r, at + r * sizeof votes[0], VOTE_BYTES, err));
    TRY(c->ops->wait(c, err));
    TRY(d->ops->read(d, votes, x->tell, n * sizeof votes[0], err));
    for (uint32_t r = 0; r < n; r++)
        is_eager = is_eager || votes[r][0] != 0;
    runner_set_eager(x->engine->runner, is_eager);
    if (is_eager && !x->engine->runner_setup.is_eager)
        log_info("graphs_off", "reason=%s",
                 log_quote("a rank of the group records no passes, so none does"));
    return STATUS_OK;
}

enum status executor_gpus_join(struct executor_model *x, const struct executor_comm *c,
                               struct error *err)
{
    enum status s = collectives_gpu_join(x->gpus, &x->place, c->id, err);
    if (s == STATUS_OK)
        s = agree_on_records(x, err);
    if (s != STATUS_OK)
        executor_gpus_leave(x);
    else
        log_info("joined", "rank=%u/%u stage=%u/%u transport=nccl", c->rank, c->tp, c->stage,
                 c->pp);
    return s;
}

void executor_gpus_leave(struct executor_model *x)
{
    struct error why;
    x->refused_record = x->refused_record || runner_refused_record(x->engine->runner);
    if (collectives_gpu_drain(x->gpus)) /* none runs now, and the abort waits for their end */
        runner_drop_records(x->engine->runner);
    if (collectives_gpu_leave(x->gpus, &why) != STATUS_OK)
        note_lost(x, &why);
    else
        executor_await_device(x); /* a failure that the backend keeps is none of NCCL's */
}

void executor_gpus_close(struct executor_model *x)
{
    struct device *d = x->found.device;
    if (x->tell)
        d->ops->release(d, x->tell, EXECUTOR_TELL_BYTES);
    collectives_gpu_close(x->gpus);
    x->tell = NULL;
    x->gpus = NULL;
}

/* An operator that this model needs and the device has not got fails in every life of this process:
 * the worker ends, and is not started anew. */
static void lose_device(struct executor_model *x, const struct error *why)
{
    log_error(why->status == STATUS_UNSUPPORTED ? "operator_unsupported" : "device_lost",
              "error=%s", log_quote(why->text));
    note_lost(x, why);
}

/* No cudaStreamSynchronize: that of a device which hangs does not come back. A step that asked for
 * too much is no loss of the device, and told once. */
void executor_await_device(struct executor_model *x)
{
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t until = clock_mono_ns() + x->stuck_ns;
    enum status s;
    struct error why;
    if (!x->device->query || atomic_load(&x->is_lost))
        return;
    while ((s = x->device->query(x, &why)) == STATUS_LIMIT ||
           (s == STATUS_AGAIN && clock_mono_ns() < until)) {
        executor_bump(&x->base);
        (void)nanosleep(&pause, NULL);
    }
    if (s == STATUS_AGAIN)
        error_set(&why, STATUS_TIMEOUT, "the device hangs: it has not come to an end after %.0f s",
                  (double)x->stuck_ns / NS_PER_S);
    if (s != STATUS_OK)
        lose_device(x, &why);
}

/* Of several ranks the group's end tells: here nothing could be waited for. */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err)
{
    bool may_be = s != STATUS_OK && s != STATUS_PROTOCOL && s != STATUS_CLOSED;
    if (!may_be || x->gpus || atomic_load(&x->is_lost))
        return;
    if (s == STATUS_TIMEOUT && x->draws)
        lose_device(x, err);
    else
        executor_await_device(x);
}

/* In a call that neither an interrupt nor a deadline ends: a copy to the host, a launch. */
static bool is_stuck(const struct executor_model *x)
{
    uint64_t entered = atomic_load(&x->entered_ns), told = atomic_load(&x->interrupted_ns);
    uint64_t from = entered > told ? entered : told;
    return x->draws && entered != 0 && told != 0 && clock_mono_ns() > from + x->stuck_ns;
}

bool executor_lost(const struct executor *e, struct error *why)
{
    const struct executor_model *x = (const struct executor_model *)e;
    if (atomic_load(&x->is_lost)) {
        *why = x->why_lost;
        return true;
    }
    if (is_stuck(x)) {
        (void)error_set(why, STATUS_TIMEOUT,
                        "the device hangs: the step under way has not come back %.0f s after it "
                        "was to end",
                        (double)x->stuck_ns / NS_PER_S);
        return true;
    }
    if (!x->gpus || !collectives_gpu_overdue(x->gpus))
        return false;
    (void)error_set(why, STATUS_IO, "the abort of the collectives does not come to its end");
    return true;
}
