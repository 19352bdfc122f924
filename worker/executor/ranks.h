#pragma once
/* An executor's way to the ranks of its group, apart from the collectives inside a pass: one table
 * for each kind, x->group, which is never NULL. Who calls does not ask which it is. On the compute
 * thread, but for open, listen, address, make_id, interrupt, is_overdue and close (the loop's).
 * x->in is the group at hand: x->group, or of one rank alone, where there were others before,
 * executor_alone. leave is x->group's whatever is at hand: it ends an interrupt, too. */
#include "worker/executor/state.h"

/* A step with guesses tells as much; more goes in turns. */
enum { EXECUTOR_TELL_BYTES = 64 << 10 };

/* NULL: there is nothing to do. */
struct executor_group {
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
    /* Nothing of the group is under way any more; or the process has to end (x->is_lost). */
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
extern const struct executor_group executor_alone;      /* one rank */
extern const struct executor_group executor_group_comm; /* executor_model_comm.c: struct comm */
extern const struct executor_group executor_group_gpus; /* executor_model_gpus.c: NCCL */

/* What the drawing rank has goes to all ranks: n_bytes of the host. One rank: nothing. Errors as
 * the collectives have them. */
MUST_USE static inline enum status executor_tell(struct executor_model *x, void *data,
                                                 size_t n_bytes, struct error *err)
{
    return x->in->tell ? x->in->tell(x, data, n_bytes, err) : STATUS_OK;
}
/* Where ids stay on the device: those of the first n_slots that were drawn last. */
MUST_USE static inline enum status executor_share_last(struct executor_model *x, uint32_t n_slots,
                                                       struct error *err)
{
    return n_slots > 0 && x->in->share_last ? x->in->share_last(x, n_slots, err) : STATUS_OK;
}
/* In stages, and without guesses, ids go round after each pass and not after the last one. */
static inline bool executor_tells_by_pass(const struct executor_model *x, const struct drawn *d)
{
    return x->place.pp > 1 && !d->guessed && !x->in->is_on_device;
}

/* ---- a device that may be lost (executor_model_lost.c) ---- */

/* The process has to end: the first reason is kept. */
void executor_note_lost(struct executor_model *x, const struct error *why);
/* A step failed with s, which err is of: is the device lost with it (x->is_lost)? */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err);
/* Until nothing is under way on the device; or it is lost. */
void executor_await_device(struct executor_model *x);
bool executor_lost(const struct executor *e, struct error *why);
