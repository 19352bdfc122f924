#pragma once
/* Defines what the .cu files share: CUDA's errors as enum status, the structs behind the opaque
 * pointers, and reductions of a fixed order. */
#include <cuda_runtime.h>

extern "C" {
#include "common/base/mem.h"
#include "kernels/cuda/device/abi.h"
}

/* GPU_ALLOWED_KERNELS is the size of the table, by address, of kernels that may have all of a
 * block's shared memory. The table is at most half full. */
#define GPU_ALLOWED_KERNELS 512u

struct gpu_device {
    int ordinal;
    /* whether kernels can be launched early, and whether early launches are enabled (launch.cuh) */
    bool can_launch_early, launches_early;
    uint32_t shared_bytes; /* limit of shared memory for a block, from gpu_info */
    uint32_t n_allowed;
    const void *allowed[GPU_ALLOWED_KERNELS];
};

struct gpu_stream {
    struct gpu_device *device;
    cudaStream_t native;
};

/* Converts a CUDA error to a status. It also clears the error of a failed launch from CUDA's
 * per-thread record, so that the error is reported once. */
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

/* Every entry point sets the current device, because it is a property of the calling thread. */
static inline enum status gpu_enter(const struct gpu_device *d, struct error *err)
{
    return gpu_check(cudaSetDevice(d->ordinal), "cudaSetDevice", err);
}

/* Returns the sum over aligned groups of N lanes (a power of two, at most 32), as a fixed tree.
 * All lanes of the warp must call it, and every lane of a group gets the same bits. */
template <unsigned N> __device__ inline float lanes_sum(float v)
{
#pragma unroll
    for (unsigned step = N / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Returns the sum over the first THREADS threads of a block, adding lanes first and then warps.
 * In blocks with more than one row, a row has at most one warp, so only whole blocks wait at the
 * barrier. */
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
