#pragma once
/* Declares sums of few bytes in one launch, over memory of the other ranks' devices. Such a sum
 * is the all-reduce of a decode step, where most of the time of NCCL's ring is latency. Each
 * rank has a region on its own device that all ranks map: flags and two slots. Sums are float,
 * in the order of ranks, rounded once, so all ranks get the same bits. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_ONESHOT_MAX_RANKS 8u
#define GPU_ONESHOT_MAX_BYTES (512u << 10)

/* Returns the bytes of a rank's region. */
uint64_t cuda_oneshot_bytes(void);
/* Returns the most bytes of x that n_ranks ranks may sum over peer memory, or 0 when that number
 * of ranks is not supported. Each device reads n - 1 times x: at most 1.75 MiB, which takes 4 us
 * on an H200's links. NCCL has about 20 us of latency for any size. */
uint64_t cuda_oneshot_limit(uint32_t n_ranks);
/* Enqueues a reset of the rank's own region; fresh zeros need none. The reset must be after the
 * last sum of the previous group, and before any rank's first sum of the next group. */
MUST_USE enum status cuda_oneshot_begin(struct gpu_stream *s, void *own, struct error *err);

struct oneshot_params {
    /* `regions` holds the n_ranks regions as this rank has mapped them, aligned to 256 bytes. */
    void *regions[GPU_ONESHOT_MAX_RANKS];
    uint32_t rank, n_ranks; /* n_ranks is 2, 4 or 8 */
    uint32_t tag; /* mark of the group: the same on all ranks, different from the last group's */
    void *x;      /* bfloat16 numbers to be summed, aligned to 16 bytes */
    size_t n; /* number of elements: a multiple of 8, above 0, at most cuda_oneshot_limit bytes */
    uint64_t timeout_ns; /* longest wait for a late peer, in ns */
    /* `failed` is in device or pinned memory. A sum sets it to 1 + the number of the rank that
     * did not arrive. After that, sums of the region return at once and leave x unchanged. */
    uint32_t *failed;
    const uint32_t *abort; /* word that the host sets to end the wait in the same way */
};
/* Enqueues a sum. Returns STATUS_UNSUPPORTED for other numbers of ranks, sizes or alignments;
 * NCCL computes these sums. All ranks must call it in the same order with the same n. The call
 * may be captured. */
MUST_USE enum status cuda_oneshot_sum_bf16(struct gpu_stream *s, const struct oneshot_params *p,
                                           struct error *err);

#ifdef __cplusplus
}
#endif
