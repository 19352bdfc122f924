#pragma once
/* The .cu files share this: CUDA's errors as ours, the structs behind the opaque pointers, and
 * reductions of a fixed order. */
#include <cuda_runtime.h>

extern "C" {
#include "common/base/mem.h"
#include "kernels/cuda/device/abi.h"
}

/* Kernels that may have all of a block's shared memory: a table by address, half full at most. */
#define GPU_ALLOWED_KERNELS 512u

struct gpu_device {
    int ordinal;
    bool can_launch_early, launches_early; /* launch.cuh */
    uint32_t shared_bytes;                 /* gpu_info's */
    uint32_t n_allowed;
    const void *allowed[GPU_ALLOWED_KERNELS];
};

struct gpu_stream {
    struct gpu_device *device;
    cudaStream_t native;
};

/* Takes the error of a failed launch off CUDA's per-thread record too, so that it is told once. */
static inline enum status gpu_check(cudaError_t e, const char *call, struct error *err)
{
    if (e == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError();
    enum status s = e == cudaErrorMemoryAllocation                              ? STATUS_NO_MEMORY
                    : e == cudaErrorInvalidValue || e == cudaErrorInvalidDevice ? STATUS_INVALID
                                                                                : STATUS_IO;
    return error_set(err, s, "%s: %s (%s)", call, cudaGetErrorString(e), cudaGetErrorName(e));
}

/* The current device is a property of the calling thread: every entry sets it. */
static inline enum status gpu_enter(const struct gpu_device *d, struct error *err)
{
    return gpu_check(cudaSetDevice(d->ordinal), "cudaSetDevice", err);
}

/* Sum over aligned groups of N lanes (a power of two, at most 32) as a fixed tree; all of the warp
 * takes part, and every lane of a group gets the same bits. */
template <unsigned N> __device__ inline float lanes_sum(float v)
{
#pragma unroll
    for (unsigned step = N / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Sum over the first THREADS threads of a block: lanes, then warps. Blocks of more than one row
 * have rows of at most one warp, so that only whole blocks meet at the barrier. */
template <unsigned THREADS> __device__ inline float threads_sum(float v)
{
    constexpr unsigned WARP = 32;
    if constexpr (THREADS <= WARP) {
        return lanes_sum<THREADS>(v);
    } else {
        static_assert(THREADS % WARP == 0 && THREADS / WARP <= WARP, "one warp adds the warps");
        __shared__ float sums[THREADS / WARP];
        const unsigned lane = threadIdx.x % WARP;
        v = lanes_sum<WARP>(v);
        if (lane == 0)
            sums[threadIdx.x / WARP] = v;
        __syncthreads();
        return lanes_sum<WARP>(lane < THREADS / WARP ? sums[lane] : 0.0f);
    }
}
