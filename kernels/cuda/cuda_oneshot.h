#pragma once
/* Sums of few bytes over memory of the other ranks' devices, in one launch: what a step's
 * all-reduce is at decode, where NCCL's ring is all latency. Each rank has a region of its own
 * device that all map: flags and two slots. Sums are float, in the order of ranks, rounded once:
 * the same bits on all of them. */
#include "kernels/cuda/cuda_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_ONESHOT_MAX_RANKS 8u
#define GPU_ONESHOT_MAX_BYTES (512u << 10)

/* Of a rank's region: zeroed by its owner before any rank's first sum. */
uint64_t cuda_oneshot_bytes(void);

struct oneshot_params {
    void *regions[GPU_ONESHOT_MAX_RANKS]; /* [n_ranks], as this rank sees them; aligned to 256 */
    uint32_t rank, n_ranks;               /* 2, 4 or 8 ranks */
    void *x;                              /* bfloat16, aligned to 16 bytes */
    size_t n;                             /* a multiple of 8; GPU_ONESHOT_MAX_BYTES at most */
    uint64_t timeout_ns;                  /* that a peer may come later */
    uint32_t *failed; /* the device's or pinned; set to 1 + the rank that did not come: from then on
                         sums return at once, with x as it was */
};
/* STATUS_UNSUPPORTED for other numbers of ranks, sizes or alignments: NCCL takes those. All ranks
 * call it in the same order with the same n; it may be captured. */
MUST_USE enum status cuda_oneshot_sum_bf16(struct gpu_stream *s, const struct oneshot_params *p,
                                           struct error *err);

#ifdef __cplusplus
}
#endif
