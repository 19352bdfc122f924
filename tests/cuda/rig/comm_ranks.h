#pragma once
/* Ranks as processes, for the tests of kernels/cuda/comm/abi.h: each with a device of its own
 * making, since nothing of CUDA survives a fork. */
#include <stdatomic.h>

#include "kernels/cuda/comm/abi.h"

#define RANKS_MAX 8u

/* Between the test and its ranks. */
struct ranks_shared {
    uint8_t ids[4][GPU_COMM_ID_BYTES]; /* by epoch */
    _Atomic uint32_t has_id[4];
    _Atomic uint32_t at[RANKS_MAX]; /* how far a rank has come: the test's own numbers */
    _Atomic uint32_t n_done;
    _Atomic uint32_t killed; /* rank 1's end was seen */
    _Atomic uint64_t killed_ns, ready_ns;
};

struct rank {
    struct ranks_shared *shared;
    uint32_t i, n;
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_comm *comm;
    struct gpu_comm_options options;
    bool any_order; /* sums may have been added in */
};

/* What one rank does. False: it has said what is wrong. */
typedef bool rank_fn(struct rank *r);

struct ranks_case {
    const char *name;
    uint32_t n;
    rank_fn *fn;
    const char *loss, *version; /* FAKENCCL_LOSS, FAKENCCL_VERSION; or NULL */
    bool devices_of_their_own;  /* rank i has device i; else all have the first */
    bool any_order;             /* of sums: the library's own */
    bool one_shot;              /* small sums over peer memory: they are off elsewhere */
    bool off_on_1;              /* but not of rank 1 */
    bool only_0_gives_up;       /* join_timeout_ms is rank 0's; the others have the default */
    const char *lacks;          /* "NAME=1", of rank 1's environment alone; or NULL */
    bool kills; /* rank 1 is killed when its `at` is 1, and begins anew with `at` 2 */
    struct gpu_comm_options options; /* but for the stream */
};
/* All ranks were content. */
bool ranks_run(const struct ranks_case *c);

/* Rank 0 makes the epoch's id, the others wait for it. */
bool rank_id(struct rank *r, uint32_t epoch, uint8_t out[GPU_COMM_ID_BYTES]);
bool rank_join(struct rank *r, uint32_t epoch, uint32_t tp, uint32_t pp, struct error *err);
/* False, with the file's line and the error. */
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
