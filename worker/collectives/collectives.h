#pragma once
/* The collectives between the ranks of one model inside a step, behind one vtable. On CPUs
 * `struct comm` implements it (docs/develop/comm.md), on GPUs NCCL (docs/develop/comm.md,
 * "NCCL"). The runner talks to other ranks only through it; `struct ranks_ops` joins, leaves,
 * interrupts and broadcasts sampled ids. An implementation embeds `struct collectives` as its
 * first member.
 *
 * Pointers are device pointers. On a CPU a call returns when the result is there. On a GPU a
 * call is enqueued on the device's stream, in the order of the calls, and may be captured into a
 * graph. Later work on the stream sees its result, and `wait` waits for it on the host. Every
 * rank calls the same collectives in the same order with the same sizes.
 *
 * All calls are made on the compute thread. Errors: STATUS_CLOSED after an interrupt, otherwise
 * the communicator's error (STATUS_IO: a peer is gone). After any error except wrong arguments
 * the rank must leave the group. The executor joins, leaves and interrupts, on the object that
 * embeds this one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "worker/model/cut.h"

#define COLLECTIVES_MAX_RANKS 64u

/* Position of this rank now. Outside a group the rank is 0 of 1 and has no neighbour. */
struct collectives_place {
    uint32_t rank, n_ranks; /* within the stage */
    bool before, after;     /* linked with this rank of the previous stage, of the next stage */
};

/* Columns of a matrix that are split among the ranks of a stage: rank r has of[r].n of them. */
struct collectives_columns {
    float *x; /* [n_rows][stride]; rank 0: its columns begin at of[0].first; others: at 0 */
    /* stride: elements of a row of `x` on this rank; rank 0: the whole row */
    uint32_t n_rows, stride;
    const struct cut_range *of; /* [n_ranks]; of[0].first is 0 */
};

struct collectives;
struct collectives_ops {
    struct collectives_place (*place)(const struct collectives *c);
    /* Adds the other ranks' `x` to `x`; `n` activations of the device's element type. This call
     * and the next two are between the ranks of the stage. */
    MUST_USE enum status (*all_reduce)(struct collectives *c, void *x, size_t n, struct error *err);
    MUST_USE enum status (*all_reduce_floats)(struct collectives *c, float *x, size_t n,
                                              struct error *err);
    /* Copies the other ranks' columns to their places on rank 0. */
    MUST_USE enum status (*gather_columns)(struct collectives *c,
                                           const struct collectives_columns *m, struct error *err);
    /* Copies n_bytes from each rank, rank 0 included, to `all` on rank 0: [n_ranks][n_bytes],
     * host memory. `all` is NULL on the other ranks. The pointer is NULL when the implementation
     * has no such call. */
    MUST_USE enum status (*gather)(struct collectives *c, const void *own, void *all,
                                   size_t n_bytes, struct error *err);
    /* Sends `data` from rank `root` of all tp x pp ranks (stage * tp + rank) to all of them. */
    MUST_USE enum status (*broadcast)(struct collectives *c, uint32_t root, void *data,
                                      size_t n_bytes, struct error *err);
    /* `take` receives from this rank of the previous stage, `give` sends to this rank of the
     * next one. The receiver may not have all of it when `give` returns. The next calls may
     * overwrite `data` nevertheless. */
    MUST_USE enum status (*take)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    MUST_USE enum status (*give)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    /* Waits until everything enqueued is done, as ops->pass.sync does, but an interrupt or a
     * lost peer ends the wait. On a CPU it returns at once. */
    MUST_USE enum status (*wait)(struct collectives *c, struct error *err);
};

struct collectives {
    const struct collectives_ops *ops;
};

/* Collectives over communicators of CPUs. The communicators are borrowed, joined or not. */
struct comm_stages;
struct collectives_comm {
    struct collectives base;
    const struct comm_stages *comms;
    uint64_t spent_ns; /* time in calls, mostly waiting for other ranks */
};
void collectives_comm_init(struct collectives_comm *c, const struct comm_stages *comms);
