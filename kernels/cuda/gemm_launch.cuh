#pragma once
/* How the products of gemm.cuh are cut into blocks, and their launch. The formats' kernels are
 * compiled in a file each (linear_*.cu), which linear.cu calls by the table below. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/launch.cuh"

/* What a launch may use. */
struct gemm_limits {
    uint32_t n_multiprocessors, shared_bytes; /* of a block at most */
    uint32_t most_counters;
    uint64_t partial_bytes;
};
typedef cudaError_t gemm_launch_fn(struct gemm_args a, const gemm_limits &limits,
                                   const struct gpu_stream *stream);
gemm_launch_fn gemm_launch_bf16, gemm_launch_u4, gemm_launch_u4_min, gemm_launch_i8,
    gemm_launch_i8_min, gemm_launch_f8, gemm_launch_mx4;

/* Row tiles of a warp: two where activations are many, so that reading these from shared memory
 * does not bound the product. */
static inline uint32_t gemm_row_tiles(uint32_t n_rows)
{
    return n_rows > 16 ? 2 : 1;
}

struct gemm_plan {
    uint32_t warps_k, n_steps, n_stages, n_blocks, n_splits, shared_bytes;
    double cost;
};

/* Cost: bytes through the second cache (weights, activations of each block, partial sums; a meeting
 * of blocks costs a microsecond or so beside them), over how busy the blocks keep the device. One
 * block to a multiprocessor has 40 KB and more under way, which the memory's latency needs; codes
 * take instructions too, which two blocks interleave better than one. */
static constexpr double GEMM_MEETING_BYTES = 4e6;
template <enum gpu_format F, uint32_t GROUP>
static gemm_plan gemm_plan_with(const gemm_args &a, const gemm_limits &limits, uint32_t warps_k)
{
    const uint32_t mt = gemm_row_tiles(a.n_rows), block_k = warps_k * gemm_traits<F, GROUP>::STEP_K;
    const uint32_t tiles = GEMM_WARPS / warps_k * mt, outputs = tiles * GPU_TILE_N;
    gemm_plan p = {};
    p.warps_k = warps_k;
    p.n_steps = (a.k + block_k - 1) / block_k;
    p.n_blocks = (a.n_tiles + tiles - 1) / tiles;
    const uint32_t slots = limits.n_multiprocessors * (mt == 1 ? 2 : 1);
    const uint64_t partial = (uint64_t)a.n_rows * a.n_tiles * GPU_TILE_N * sizeof(float);
    p.n_splits = slots / p.n_blocks;
    p.n_splits = p.n_splits > p.n_steps / 4 ? p.n_steps / 4 : p.n_splits;
    p.n_splits = p.n_splits * partial > limits.partial_bytes
                     ? (uint32_t)(limits.partial_bytes / partial)
                     : p.n_splits;
    if (p.n_splits < 2 || p.n_blocks > limits.most_counters)
        p.n_splits = 1;
    gemm_args sized = a;
    sized.warps_k = warps_k;
    const uint32_t stage = gemm_stage_bytes<F, GROUP>(mt, sized);
    const uint32_t finish = warps_k * a.n_rows * (outputs + 4) * (uint32_t)sizeof(float);
    static const uint32_t depths[] = {2, 3, 4, 6};
    for (uint32_t n : depths) /* two blocks to a multiprocessor, beyond what is needed */
        if (n <= gemm_traits<F, GROUP>::MOST_STAGES &&
            n * stage <= limits.shared_bytes / (n > 2 && mt == 1 ? 2 : 1))
            p.n_stages = n;
    p.shared_bytes = p.n_stages * stage > finish ? p.n_stages * stage : finish;
    const double weights = (double)a.n_tiles * a.parts[0].tile_bytes;
    const double x = (double)p.n_blocks * a.n_rows * a.k * 2;
    const double sums =
        p.n_splits > 1 ? 2.0 * p.n_splits * (double)partial + GEMM_MEETING_BYTES : 0;
    const double each = (double)p.n_blocks * p.n_splits / limits.n_multiprocessors;
    const double alone = F == GPU_BF16 || mt == 2 ? 0.95 : 0.75;
    const double busy =
        each < 1 ? alone * (0.3 + 0.7 * each) : alone + (1 - alone) * (each < 2 ? each - 1 : 1);
    p.cost = (weights + x + sums) / busy;
    if (p.n_stages == 0 || p.shared_bytes > limits.shared_bytes)
        p.cost = -1;
    return p;
}

template <enum gpu_format F, uint32_t GROUP, uint32_t NB, uint32_t MT>
static cudaError_t gemm_enqueue(const gemm_args &a, const gemm_plan &p,
                                const struct gpu_stream *stream)
{
    const cudaError_t e =
        cudaFuncSetAttribute(gemm_kernel<F, GROUP, NB, MT>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)p.shared_bytes);
    if (e != cudaSuccess)
        return e;
    return launch_kernel(stream, gemm_kernel<F, GROUP, NB, MT>, dim3(p.n_blocks, p.n_splits),
                         dim3(GEMM_THREADS), p.shared_bytes, a);
}

/* cudaErrorInvalidConfiguration: so many rows do not fit; half of them may. */
template <enum gpu_format F, uint32_t GROUP>
static cudaError_t gemm_launch_group(gemm_args a, const gemm_limits &limits,
                                     const struct gpu_stream *stream)
{
    gemm_plan best = {};
    best.cost = -1;
    for (uint32_t warps_k = 1; warps_k <= GEMM_WARPS; warps_k *= 2) {
        const gemm_plan p = gemm_plan_with<F, GROUP>(a, limits, warps_k);
        if (p.cost >= 0 && (best.cost < 0 || p.cost < best.cost))
            best = p;
    }
    if (best.cost < 0)
        return cudaErrorInvalidConfiguration;
    const uint32_t steps = a.group / GPU_STEP_K;
    a.groups_inverse = steps < 2 ? 0 : UINT32_MAX / steps + 1;
    a.warps_k = best.warps_k, a.n_steps = best.n_steps, a.n_stages = best.n_stages;
    return a.n_rows <= 8    ? gemm_enqueue<F, GROUP, 1, 1>(a, best, stream)
           : a.n_rows <= 16 ? gemm_enqueue<F, GROUP, 2, 1>(a, best, stream)
           : a.n_rows <= 32 ? gemm_enqueue<F, GROUP, 4, 2>(a, best, stream)
                            : gemm_enqueue<F, GROUP, 8, 2>(a, best, stream);
}

/* The groups that a format's matrices have (layout.c). */
template <enum gpu_format F>
static cudaError_t gemm_launch(const gemm_args &a, const gemm_limits &limits,
                               const struct gpu_stream *stream)
{
    constexpr bool OF_16 = F == GPU_U4 || F == GPU_U4_MIN || F == GPU_I8;
    constexpr bool OF_MANY = F == GPU_U4 || F == GPU_I8_MIN || F == GPU_F8;
    if constexpr (F == GPU_BF16)
        return gemm_launch_group<F, GPU_STEP_K>(a, limits, stream);
    if constexpr (OF_16)
        if (a.group == 16)
            return gemm_launch_group<F, 16>(a, limits, stream);
    if constexpr (OF_MANY)
        if (a.group >= GPU_STEP_K)
            return gemm_launch_group<F, GPU_STEP_K>(a, limits, stream);
    if constexpr (F != GPU_BF16)
        return a.group == 32 ? gemm_launch_group<F, 32>(a, limits, stream) : cudaErrorInvalidValue;
}
