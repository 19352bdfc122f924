#pragma once
/* Declares the collectives between the ranks of one model inside a step, behind one vtable. On
 * CPUs `struct comm` implements them (docs/develop/comm.md); on GPUs NCCL does
 * (docs/develop/comm.md, "NCCL"). The runner communicates with other ranks only through this
 * vtable. `struct ranks_ops` joins, leaves, interrupts and broadcasts sampled ids. An
 * implementation embeds `struct collectives` as its first member.
 *
 * Pointers are device pointers. On a CPU a call returns when the result is there. On a GPU a
 * call is enqueued on the device's stream, in the order of the calls, and may be captured into a
 * graph. Later work on the stream sees its result, and `wait` waits for it on the host. Every
 * rank calls the same collectives in the same order with the same sizes.
 *
 * All calls are made on the compute thread. A call returns STATUS_CLOSED after an interrupt, and
 * otherwise the communicator's error (STATUS_IO: a peer is gone). After any error except wrong
 * arguments the rank must leave the group. The executor joins, leaves and interrupts through the
 * object that embeds `struct collectives`. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "worker/model/cut.h"

#define COLLECTIVES_MAX_RANKS 64u

/* `collectives_place` is the current position of this rank in its group. Outside a group the
 * rank is 0 of 1 and has no neighbour. */
struct collectives_place {
    uint32_t rank, n_ranks; /* rank within the stage; ranks of the stage */
    /* `before`: a link exists to the same rank of the previous stage; `after`: to that of the
     * next stage */
    bool before, after;
};

/* `collectives_columns` describes columns of a matrix that are split among the ranks of a stage.
 * Rank r has of[r].n of the columns. */
struct collectives_columns {
    float *x; /* [n_rows][stride]; this rank's columns begin at 0 */
    /* stride: elements of a row of `x` on this rank; on rank 0 the whole row */
    uint32_t n_rows, stride;
    const struct cut_range *of; /* columns of each rank, [n_ranks]; of[0].first is 0 */
};

struct collectives;
struct collectives_ops {
    struct collectives_place (*place)(const struct collectives *c);
    /* Adds the other ranks' `x` to this rank's `x`. `n` is the number of elements, of the
     * device's activation type. This call and the next two run between the ranks of one stage. */
    MUST_USE enum status (*all_reduce)(struct collectives *c, void *x, size_t n, struct error *err);
    MUST_USE enum status (*all_reduce_floats)(struct collectives *c, float *x, size_t n,
                                              struct error *err);
    /* Copies the other ranks' columns to their places on rank 0. */
    MUST_USE enum status (*gather_columns)(struct collectives *c,
                                           const struct collectives_columns *m, struct error *err);
    /* Copies n_bytes from each rank, rank 0 included, to `all` on rank 0. `all` is
     * [n_ranks][n_bytes] in host memory, and NULL on the other ranks. `gather` is NULL when the
     * implementation has no such call. */
    MUST_USE enum status (*gather)(struct collectives *c, const void *own, void *all,
                                   size_t n_bytes, struct error *err);
    /* Sends `data` from rank `root` of all tp x pp ranks (stage * tp + rank) to all of them. */
    MUST_USE enum status (*broadcast)(struct collectives *c, uint32_t root, void *data,
                                      size_t n_bytes, struct error *err);
    /* `take` receives data from the same rank of the previous stage, and `give` sends data to
     * the same rank of the next stage. When `give` returns, the receiver may not have all the
     * data yet. This rank's next calls may overwrite `data` nevertheless. */
    MUST_USE enum status (*take)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    MUST_USE enum status (*give)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    /* Waits until all enqueued work is done, as ops->pass.sync does. An interrupt or a lost peer
     * also ends the wait. On a CPU the call returns at once. */
    MUST_USE enum status (*wait)(struct collectives *c, struct error *err);
};

struct collectives {
    const struct collectives_ops *ops;
};

/* `collectives_comm` implements the collectives over communicators of CPUs. The communicators
 * are borrowed. They may join before or after. */
struct comm_stages;
struct collectives_comm {
    struct collectives base;
    const struct comm_stages *comms;
    uint64_t spent_ns; /* time spent in calls, mostly in waiting for other ranks */
};
void collectives_comm_init(struct collectives_comm *c, const struct comm_stages *comms);
