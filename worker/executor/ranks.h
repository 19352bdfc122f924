#pragma once
/* An executor's way to the ranks of its replica, apart from the collectives inside a pass: one
 * table for each kind, x->ranks.ops, which is never NULL. Who calls does not ask which it is. On
 * the compute thread, but for open, listen, address, make_id, interrupt, is_overdue and close (the
 * loop's). x->ranks.in is the replica at hand: x->ranks.ops, or of one rank alone, where there were
 * others before, ranks_alone. leave is x->ranks.ops' whatever is at hand: it ends an interrupt,
 * too. */
#include "worker/executor/state.h"

/* A step with draft tokens tells as much; more goes in turns. */
enum { EXECUTOR_TELL_BYTES = 64 << 10 };

/* NULL: there is nothing to do. */
struct ranks_ops {
    uint32_t id_bytes;
    bool is_on_device; /* ids go from device to device, and a step's end is waited for with wait */
    enum status (*open)(const struct worker_options *o, struct executor_model *x,
                        struct error *err);
    struct collectives *(*collectives)(struct executor_model *x); /* the runner's */
    enum status (*listen)(struct executor_model *x, const char *host, struct error *err);
    struct str (*address)(const struct executor_model *x); /* "": none yet; NULL: none is needed */
    enum status (*make_id)(struct executor_model *x, uint8_t *out, struct error *err);
    /* After an error nothing is joined. */
    enum status (*join)(struct executor_model *x, const struct executor_comm *c, struct error *err);
    /* Nothing of the replica is under way any more; or the process has to end (x->is_lost). */
    void (*leave)(struct executor_model *x);
    void (*interrupt)(struct executor_model *x); /* what blocks returns STATUS_CLOSED soon */
    /* Are all ranks here? check may wait; look does not. */
    enum status (*check)(struct executor_model *x, struct error *err);
    enum status (*look)(struct executor_model *x, struct error *err);
    enum status (*tell)(struct executor_model *x, void *data, size_t n_bytes, struct error *err);
    enum status (*share_last)(struct executor_model *x, uint32_t n_slots, struct error *err);
    /* As collectives_gpu_wait. */
    enum status (*wait)(struct executor_model *x, enum status (*done)(void *ctx, struct error *err),
                        void *ctx, struct error *err);
    bool (*is_overdue)(const struct executor_model *x); /* its end does not come to an end */
    void (*close)(struct executor_model *x);
};
extern const struct ranks_ops ranks_alone; /* one rank */
extern const struct ranks_ops ranks_cpu;   /* ranks_cpu.c: struct comm */
extern const struct ranks_ops ranks_gpu;   /* ranks_gpu.c: NCCL */

/* What the sampling rank has goes to all ranks: n_bytes of the host. One rank: nothing. Errors as
 * the collectives have them. */
MUST_USE static inline enum status executor_tell(struct executor_model *x, void *data,
                                                 size_t n_bytes, struct error *err)
{
    return x->ranks.in->tell ? x->ranks.in->tell(x, data, n_bytes, err) : STATUS_OK;
}
/* Where ids stay on the device: those of the first n_slots that were sampled last. */
MUST_USE static inline enum status executor_share_last(struct executor_model *x, uint32_t n_slots,
                                                       struct error *err)
{
    return n_slots > 0 && x->ranks.in->share_last ? x->ranks.in->share_last(x, n_slots, err)
                                                  : STATUS_OK;
}
/* In stages, and without draft tokens, ids go round after each pass and not after the last one. */
static inline bool executor_tells_by_pass(const struct executor_model *x, const struct sampled *d)
{
    return x->place.pp > 1 && !d->drafted && !x->ranks.in->is_on_device;
}
