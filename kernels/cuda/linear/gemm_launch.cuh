#pragma once
/* Cuts the products of gemm.cuh into blocks and launches them. The kernels of each format are
 * compiled in a separate file (FORMAT.cu), and linear.cu calls them through a table. */
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/linear/gemm.cuh"

/* `gemm_limits` holds the resources that a launch may use. */
struct gemm_limits {
    uint32_t n_multiprocessors, shared_bytes; /* shared_bytes: limit of shared memory for a block */
    uint32_t most_counters;
    uint64_t partial_bytes;
};
typedef cudaError_t gemm_launch_fn(struct gemm_args a, const gemm_limits &limits,
                                   const struct gpu_stream *stream);
gemm_launch_fn gemm_launch_bf16, gemm_launch_u4, gemm_launch_u4_min, gemm_launch_i8,
    gemm_launch_i8_min, gemm_launch_f8, gemm_launch_mx4;

/* Returns NB: the kernel takes up to 8 * NB rows of activations. */
static inline uint32_t gemm_row_blocks(uint32_t n_rows)
{
    return n_rows <= 8 ? 1 : n_rows <= 16 ? 2 : n_rows <= 32 ? 4 : 8;
}
/* Returns the number of blocks that a multiprocessor holds, limited by registers. */
static inline uint32_t gemm_blocks(uint32_t n_rows)
{
    return gemm_blocks_of(gemm_row_blocks(n_rows));
}
/* Returns the number of row tiles of a warp. Two tiles share a step's overhead and the reading
 * of activations from shared memory; plain numbers need that only for many rows. One tile is
 * used when two tiles would not fit into registers. With a scale for 16 inputs, one tile is also
 * used when two blocks of two tiles would not fit into the smallest shared memory of supported
 * devices. */
template <enum gpu_format F, uint32_t GROUP> static constexpr uint32_t gemm_row_tiles(uint32_t nb)
{
    constexpr bool MANY_SCALES = weights_traits<F>::HAS_OFFSET || GROUP < GPU_STEP_K;
    return (F == GPU_BF16 && nb <= 2) || (MANY_SCALES && nb == 8) || GROUP == 16 ? 1 : 2;
}

struct gemm_plan {
    uint32_t warps_k, n_steps, n_stages, n_blocks, n_splits, shared_bytes;
    double cost;
};

/* The cost of a launch is its bytes, divided by how busy the blocks keep the device. Bytes come
 * from memory (weights) and from the faster L2 cache (activations of each block, partial sums).
 * When blocks meet to add sums, that costs about a microsecond more. To hide the memory's
 * latency, each multiprocessor needs about 60 KB in flight. Codes need instructions, which more
 * warps interleave better. None of these figures has been measured. */
static constexpr double GEMM_MEETING_BYTES = 4e6, GEMM_UNDER_WAY_BYTES = 60e3, GEMM_CACHED = 0.6;

template <enum gpu_format F, uint32_t GROUP>
static double gemm_cost(const gemm_args &a, const gemm_limits &limits, const gemm_plan &p)
{
    const uint32_t mt = gemm_row_tiles<F, GROUP>(gemm_row_blocks(a.n_rows));
    const double weights = (double)a.n_tiles * a.parts[0].tile_bytes;
    const double x = (double)p.n_blocks * a.n_rows * a.k * 2;
    const double partial = (double)a.n_rows * a.n_tiles * GPU_TILE_N * sizeof(float);
    const double sums = p.n_splits > 1 ? 2 * p.n_splits * partial + GEMM_MEETING_BYTES : 0;
    const bool two_fit = p.shared_bytes + 1024 <= limits.shared_bytes / 2;
    double resident = two_fit ? gemm_blocks(a.n_rows) : 1;
    const double each = (double)p.n_blocks * p.n_splits / limits.n_multiprocessors;
    resident = each < resident ? each : resident;
    const double ahead =
        (double)(p.n_stages - 1) * GEMM_WARPS * mt * gemm_traits<F, GROUP>::TILE_BYTES;
    const double flow = resident * ahead / GEMM_UNDER_WAY_BYTES;
    const double issue = F == GPU_BF16 || resident >= 2 ? 1 : 0.6 + 0.2 * resident;
    return (weights + GEMM_CACHED * (x + sums)) / (issue * (flow < 1 ? 0.1 + 0.9 * flow : 1));
}

/* Returns the plan of a launch with its cost. Cost 0 means that the launch does not fit. */
template <enum gpu_format F, uint32_t GROUP>
static gemm_plan gemm_plan_with(const gemm_args &a, const gemm_limits &limits, uint32_t warps_k,
                                uint32_t n_stages)
{
    const uint32_t mt = gemm_row_tiles<F, GROUP>(gemm_row_blocks(a.n_rows));
    const uint32_t block_k = warps_k * gemm_traits<F, GROUP>::STEP_K;
    const uint32_t tiles = GEMM_WARPS / warps_k * mt, outputs = tiles * GPU_TILE_N;
    gemm_plan p = {};
    p.warps_k = warps_k;
    p.n_stages = n_stages;
    p.n_steps = (a.k + block_k - 1) / block_k;
    p.n_blocks = (a.n_tiles + tiles - 1) / tiles;
    const uint64_t partial = (uint64_t)a.n_rows * a.n_tiles * GPU_TILE_N * sizeof(float);
    const uint32_t slots = limits.n_multiprocessors * gemm_blocks(a.n_rows);
    const uint64_t most[] = {slots / p.n_blocks, p.n_steps / 2, limits.partial_bytes / partial};
    p.n_splits = UINT32_MAX;
    for (uint32_t i = 0; i < 3; i++)
        p.n_splits = most[i] < p.n_splits ? (uint32_t)most[i] : p.n_splits;
    if (p.n_splits < 2 || p.n_blocks > limits.most_counters)
        p.n_splits = 1;
    gemm_args sized = a;
    sized.warps_k = warps_k;
    const uint32_t ring = n_stages * gemm_stage_bytes<F, GROUP>(mt, sized);
    const uint32_t finish = warps_k * a.n_rows * (outputs + 4) * (uint32_t)sizeof(float);
    p.shared_bytes = ring > finish ? ring : finish;
    /* gate and up of a pair must be in one block */
    const bool has_pairs = !a.is_gated || tiles % 2 == 0;
    if (p.shared_bytes <= limits.shared_bytes && has_pairs)
        p.cost = gemm_cost<F, GROUP>(a, limits, p);
    return p;
}

template <enum gpu_format F, uint32_t GROUP, uint32_t NB, uint32_t MT>
static cudaError_t gemm_enqueue(const gemm_args &a, const gemm_plan &p,
                                const struct gpu_stream *stream)
{
    const cudaError_t e =
        launch_allow_shared(stream->device, (const void *)gemm_kernel<F, GROUP, NB, MT>);
    if (e != cudaSuccess)
        return e;
    return launch_kernel(stream, gemm_kernel<F, GROUP, NB, MT>, dim3(p.n_blocks, p.n_splits),
                         dim3(GEMM_THREADS), p.shared_bytes, a);
}

/* Launches the product. Returns cudaErrorInvalidConfiguration when this many rows do not fit;
 * half of them may fit. */
template <enum gpu_format F, uint32_t GROUP>
static cudaError_t gemm_launch_group(gemm_args a, const gemm_limits &limits,
                                     const struct gpu_stream *stream)
{
    gemm_plan best = {};
    for (uint32_t warps_k = 1; warps_k <= GEMM_WARPS; warps_k *= 2)
        for (uint32_t n_stages = 2; n_stages <= GEMM_MOST_STAGES; n_stages++) {
            const gemm_plan p = gemm_plan_with<F, GROUP>(a, limits, warps_k, n_stages);
            if (p.cost > 0 && (best.cost == 0 || p.cost <= best.cost))
                best = p;
        }
    if (best.cost == 0)
        return cudaErrorInvalidConfiguration;
    const uint32_t steps = a.group / GPU_STEP_K;
    a.groups_inverse = steps < 2 ? 0 : UINT32_MAX / steps + 1;
    a.warps_k = best.warps_k, a.n_steps = best.n_steps, a.n_stages = best.n_stages;
    switch (gemm_row_blocks(a.n_rows)) {
    case 1:
        return gemm_enqueue<F, GROUP, 1, gemm_row_tiles<F, GROUP>(1)>(a, best, stream);
    case 2:
        return gemm_enqueue<F, GROUP, 2, gemm_row_tiles<F, GROUP>(2)>(a, best, stream);
    case 4:
        return gemm_enqueue<F, GROUP, 4, gemm_row_tiles<F, GROUP>(4)>(a, best, stream);
    default:
        return gemm_enqueue<F, GROUP, 8, gemm_row_tiles<F, GROUP>(8)>(a, best, stream);
    }
}

/* Launches the kernel for the matrix's group size, which layout.c chose. */
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
