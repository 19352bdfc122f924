#pragma once
/* Sums of few bytes over memory of the other ranks' devices, in one launch: what a step's
 * all-reduce is at decode, where NCCL's ring is all latency. Each rank has a region of its own
 * device that all map: flags and two slots. Sums are float, in the order of ranks, rounded once:
 * the same bits on all of them. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_ONESHOT_MAX_RANKS 8u
#define GPU_ONESHOT_MAX_BYTES (512u << 10)

/* Of a rank's region. */
uint64_t cuda_oneshot_bytes(void);
/* Bytes of x that this many ranks may sum so; 0: they may not. Each device reads n - 1 times x: at
 * most 1.75 MiB, 4 us of an H200's links, where NCCL takes some 20 us of latency for any size. */
uint64_t cuda_oneshot_limit(uint32_t n_ranks);
/* Enqueues a new beginning of an own region (fresh zeros are one): behind the last sum of the group
 * before, ahead of any rank's first one of the next. */
MUST_USE enum status cuda_oneshot_begin(struct gpu_stream *s, void *own, struct error *err);

struct oneshot_params {
    void *regions[GPU_ONESHOT_MAX_RANKS]; /* [n_ranks], as this rank sees them; aligned to 256 */
    uint32_t rank, n_ranks;               /* 2, 4 or 8 ranks */
    uint32_t tag;        /* the group's, the same on all ranks, another than the last group's */
    void *x;             /* bfloat16, aligned to 16 bytes */
    size_t n;            /* a multiple of 8, not 0; cuda_oneshot_limit at most */
    uint64_t timeout_ns; /* that a peer may come later */
    uint32_t *failed; /* the device's or pinned; set to 1 + the rank that did not come: from then on
                         sums of the region return at once, with x as it was */
    const uint32_t *abort; /* the same, when the host has set it: looked at by who waits */
};
/* STATUS_UNSUPPORTED for other numbers of ranks, sizes or alignments: NCCL takes those. All ranks
 * call it in the same order with the same n; it may be captured. */
MUST_USE enum status cuda_oneshot_sum_bf16(struct gpu_stream *s, const struct oneshot_params *p,
                                           struct error *err);

#ifdef __cplusplus
}
#endif
