#pragma once
/* Declares the communication between the ranks of a replica outside the collectives of a pass,
 * with one table per kind. x->ranks.ops is the table of the replica that the process was started
 * for and is never NULL. x->ranks.in is the table of the present replica: ranks_alone when this
 * rank is alone now, else x->ranks.ops. Callers need not know the kind. `leave` is always called
 * through x->ranks.ops, because it also clears an interrupt.
 *
 * Threads: open, listen, address, make_id, interrupt, is_overdue and close run on the loop
 * thread, everything else on the compute thread. */
#include "worker/executor/state.h"

/* EXECUTOR_TELL_BYTES is the size of the buffer for ids, enough for a step with draft tokens.
 * Larger data is sent in pieces. */
enum { EXECUTOR_TELL_BYTES = 64 << 10 };

/* `ranks_ops` is the table of one kind of communication. A NULL entry means that the call has no
 * work to do. */
struct ranks_ops {
    uint32_t id_bytes;
    /* ids go from device to device, and the end of a step needs the call `wait` */
    bool is_on_device;
    enum status (*open)(const struct worker_options *o, struct executor_model *x,
                        struct error *err);
    struct collectives *(*collectives)(struct executor_model *x); /* collectives for the runner */
    enum status (*listen)(struct executor_model *x, const char *host, struct error *err);
    /* returns "" when there is no address yet; NULL = none is needed */
    struct str (*address)(const struct executor_model *x);
    enum status (*make_id)(struct executor_model *x, uint8_t *out, struct error *err);
    /* Joins the replica. After an error the rank is in no group. */
    enum status (*join)(struct executor_model *x, const struct executor_comm *c, struct error *err);
    /* Leaves the replica. Afterwards no work of the replica runs any more, or the process must
     * end (x->loss.is_lost). */
    void (*leave)(struct executor_model *x);
    /* makes a blocking call return STATUS_CLOSED soon */
    void (*interrupt)(struct executor_model *x);
    /* `check` and `look` return an error when a rank of the replica is lost. `check` may wait;
     * `look` does not. */
    enum status (*check)(struct executor_model *x, struct error *err);
    enum status (*look)(struct executor_model *x, struct error *err);
    enum status (*tell)(struct executor_model *x, void *data, size_t n_bytes, struct error *err);
    enum status (*share_last)(struct executor_model *x, uint32_t n_slots, struct error *err);
    /* Waits for the device's work, like collectives_gpu_wait. */
    enum status (*wait)(struct executor_model *x, enum status (*done)(void *ctx, struct error *err),
                        void *ctx, struct error *err);
    /* returns true when an abort has not ended in time */
    bool (*is_overdue)(const struct executor_model *x);
    void (*close)(struct executor_model *x);
};
extern const struct ranks_ops ranks_alone; /* table for one rank */
extern const struct ranks_ops ranks_cpu;   /* in ranks_cpu.c; uses struct comm */
extern const struct ranks_ops ranks_gpu;   /* in ranks_gpu.c; uses NCCL */

/* Sends n_bytes of host memory from the sampling rank to all ranks. Does nothing for one rank.
 * Errors are those of the collectives. */
MUST_USE static inline enum status executor_tell(struct executor_model *x, void *data,
                                                 size_t n_bytes, struct error *err)
{
    return x->ranks.in->tell ? x->ranks.in->tell(x, data, n_bytes, err) : STATUS_OK;
}
/* Sends the newest ids of the first n_slots slots to all ranks, when sampled ids stay on the
 * device. */
MUST_USE static inline enum status executor_share_last(struct executor_model *x, uint32_t n_slots,
                                                       struct error *err)
{
    return n_slots > 0 && x->ranks.in->share_last ? x->ranks.in->share_last(x, n_slots, err)
                                                  : STATUS_OK;
}
/* Returns true when ids are sent after each pass instead of after the step: with stages and
 * without draft tokens. */
static inline bool executor_tells_by_pass(const struct executor_model *x, const struct sampled *d)
{
    return x->place.pp > 1 && !d->drafted && !x->ranks.in->is_on_device;
}
