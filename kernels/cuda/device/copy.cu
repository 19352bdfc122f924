/* Implements a plain copy on the device. The benchmarks use it to measure the rate of the
 * device's memory (bench/gpu/ceilings.h). A thread has four loads of 16 bytes in flight,
 * neighbours copy neighbouring words, and every block copies one piece of 16 KiB. */
#include "kernels/cuda/device/launch.cuh"

namespace
{
constexpr uint32_t THREADS = 256, LOADS = 4;
constexpr uint64_t PIECE = (uint64_t)THREADS * LOADS; /* number of words of 16 bytes for a block */

__global__ __launch_bounds__(THREADS) void copy_kernel(uint4 *__restrict__ to,
                                                       const uint4 *__restrict__ from, uint64_t n)
{
    const uint64_t first = blockIdx.x * PIECE + threadIdx.x;
    uint4 words[LOADS];
    dependency_wait();
    dependency_launch();
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++)
        if (first + i * THREADS < n)
            words[i] = from[first + i * THREADS];
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++)
        if (first + i * THREADS < n)
            to[first + i * THREADS] = words[i];
}
} // namespace

extern "C" enum status cuda_copy_words(struct gpu_stream *s, void *to, const void *from,
                                       uint64_t n_bytes, struct error *err)
{
    const uint64_t n = n_bytes / sizeof(uint4), n_blocks = (n + PIECE - 1) / PIECE;
    if (n_bytes % sizeof(uint4) != 0 || n_blocks > INT32_MAX)
        return error_set(
            err, STATUS_INVALID,
            "cannot copy %llu bytes: the size must be a multiple of 16 and at most 32 TB",
            (unsigned long long)n_bytes);
    if (n == 0)
        return STATUS_OK;
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, copy_kernel, dim3((unsigned)n_blocks), dim3(THREADS), 0,
                                   static_cast<uint4 *>(to), static_cast<const uint4 *>(from), n),
                     "copy", err);
}
