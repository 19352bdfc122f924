#pragma once
/* Declares ranks as processes, for the tests of kernels/cuda/comm/abi.h. Each process opens its
 * own device, because CUDA's state does not survive a fork. */
#include <stdatomic.h>

#include "kernels/cuda/comm/abi.h"

#define RANKS_MAX 8u

/* `ranks_shared` is memory that the test and its ranks share. */
struct ranks_shared {
    uint8_t ids[4][GPU_COMM_ID_BYTES]; /* communicator id of each epoch */
    _Atomic uint32_t has_id[4];
    _Atomic uint32_t at[RANKS_MAX]; /* progress of each rank, in the test's own numbers */
    _Atomic uint32_t n_done;
    _Atomic uint32_t killed; /* set when the end of rank 1 was detected */
    _Atomic uint64_t killed_ns, ready_ns;
};

struct rank {
    struct ranks_shared *shared;
    uint32_t i, n;
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_comm *comm;
    struct gpu_comm_options options;
    bool any_order; /* whether the library may add in any order */
};

/* Runs one rank of a case. Returns false after it has printed the fault. */
typedef bool rank_fn(struct rank *r);

struct ranks_case {
    const char *name;
    uint32_t n;
    rank_fn *fn;
    const char *loss, *version; /* values of FAKENCCL_LOSS and FAKENCCL_VERSION; or NULL */
    /* whether rank i has device i; otherwise all ranks use the first device */
    bool devices_of_their_own;
    bool any_order; /* whether the library may add in any order */
    bool one_shot;  /* whether ranks allow small sums over peer memory */
    bool off_on_1;  /* whether rank 1 forbids small sums over peer memory */
    /* whether only rank 0 has join_timeout_ms; the other ranks have the default */
    bool only_0_gives_up;
    const char *lacks; /* "NAME=1" for rank 1's environment only; or NULL */
    bool kills; /* whether rank 1 is killed when its `at` is 1, and starts again with `at` 2 */
    /* `options` holds the options of all ranks, except `stream`, which each rank sets. */
    struct gpu_comm_options options;
};
/* Runs a case. Returns whether all ranks returned true. */
bool ranks_run(const struct ranks_case *c);

/* Writes the epoch's id to `out`: rank 0 makes the id, the other ranks wait for it. */
bool rank_id(struct rank *r, uint32_t epoch, uint8_t out[GPU_COMM_ID_BYTES]);
bool rank_join(struct rank *r, uint32_t epoch, uint32_t tp, uint32_t pp, struct error *err);
/* Returns `holds`. If `holds` is false, prints the line number and the error. */
bool rank_is(struct rank *r, int line, bool holds, const char *what, const struct error *err);
#define RANK_TRY(r, call)                                                                          \
    do {                                                                                           \
        struct error rank_err_ = {0};                                                              \
        struct error *why = &rank_err_;                                                            \
        bool rank_ok_ = (call) == STATUS_OK;                                                       \
        (void)why;                                                                                 \
        if (!rank_is(r, __LINE__, rank_ok_, #call, &rank_err_))                                    \
            return false;                                                                          \
    } while (0)
#define RANK_CHECK(r, holds)                                                                       \
    do {                                                                                           \
        if (!rank_is(r, __LINE__, holds, #holds, NULL))                                            \
            return false;                                                                          \
    } while (0)
