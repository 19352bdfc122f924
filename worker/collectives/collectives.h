#pragma once
/* What the ranks of one model say to each other inside a step, behind one vtable: on CPUs struct
 * comm (docs/develop/comm.md), on GPUs NCCL (docs/develop/comm.md, "NCCL"). The runner knows no
 * other way; joining, leaving, interrupting and the telling of ids are struct ranks_ops'. `struct
 * collectives` is embedded first.
 *
 * Pointers are the device's. On a CPU a call returns when the result is there; on a GPU it is
 * enqueued on the device's stream, in the order of the calls, may be captured into a graph, and its
 * result is there for whatever is enqueued behind it; `wait` tells the host. Every rank calls the
 * same collectives in the same order with the same sizes.
 *
 * All of it on the compute thread. Errors: STATUS_CLOSED when interrupted, else what the
 * communicator says (STATUS_IO: a peer is gone); after any error but of arguments the group is to
 * be left. Joining, leaving and interrupting are the executor's, on the object underneath. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "worker/model/cut.h"

#define COLLECTIVES_MAX_RANKS 64u

/* Where this rank sits now. Outside a group: rank 0 of 1, nobody before or after. */
struct collectives_place {
    uint32_t rank, n_ranks; /* in the stage */
    bool before, after;     /* linked with this rank of the stages next to this one */
};

/* Columns of a matrix whose rows the ranks of a stage share: rank r has of[r].n of them. */
struct collectives_columns {
    float *x; /* [n_rows][stride]; rank 0's own columns lie where of[0] says, the others' at 0 */
    uint32_t n_rows, stride;    /* stride: this rank's, in elements; of rank 0 the whole row */
    const struct cut_range *of; /* [n_ranks]; of[0].first is 0 */
};

struct collectives;
struct collectives_ops {
    struct collectives_place (*place)(const struct collectives *c);
    /* x += the other ranks' x; n activations of the device's element type. Between the ranks of
     * the stage, as the next two. */
    MUST_USE enum status (*all_reduce)(struct collectives *c, void *x, size_t n, struct error *err);
    MUST_USE enum status (*all_reduce_floats)(struct collectives *c, float *x, size_t n,
                                              struct error *err);
    /* Rank 0 gets the others' columns at their places. */
    MUST_USE enum status (*gather_columns)(struct collectives *c,
                                           const struct collectives_columns *m, struct error *err);
    /* Rank 0 gets n_bytes of each, its own included: all, [n_ranks][n_bytes]; NULL elsewhere. The
     * host's memory. NULL: there is none. */
    MUST_USE enum status (*gather)(struct collectives *c, const void *own, void *all,
                                   size_t n_bytes, struct error *err);
    /* From one of all tp x pp ranks (stage * tp + rank) to all of them. */
    MUST_USE enum status (*broadcast)(struct collectives *c, uint32_t root, void *data,
                                      size_t n_bytes, struct error *err);
    /* From this rank of the stage before; to the one behind. The latter may not have taken all of
     * it when `give` returns; data may be overwritten then all the same by what is called next. */
    MUST_USE enum status (*take)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    MUST_USE enum status (*give)(struct collectives *c, void *data, size_t n_bytes,
                                 struct error *err);
    /* Until all that was enqueued is done, as ops->pass.sync, but an interrupt or a lost peer ends
     * it. On a CPU there is nothing to wait for. */
    MUST_USE enum status (*wait)(struct collectives *c, struct error *err);
};

struct collectives {
    const struct collectives_ops *ops;
};

/* Over CPUs' communicators, which are borrowed, joined or not. */
struct comm_stages;
struct collectives_comm {
    struct collectives base;
    const struct comm_stages *comms;
    uint64_t spent_ns; /* in calls, most of it waiting for others */
};
void collectives_comm_init(struct collectives_comm *c, const struct comm_stages *comms);
