#pragma once
/* Defines the arguments of gemm.cuh's products, and the sizes of their data in shared memory. */
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/weights/formats.cuh"

static constexpr uint32_t GEMM_WARPS = 8, GEMM_THREADS = 32 * GEMM_WARPS;
static constexpr uint32_t GEMM_MAX_PARTS = LINEAR_MAX_PARTS, GEMM_MOST_STAGES = 4;

struct gemm_part {
    const uint8_t *codes, *scales;
    const float *bias; /* bias of each output, or NULL */
    void *out;         /* rows of results, bfloat16 or float */
    uint32_t out_stride, n, first_tile, tile_bytes, to_float;
};
struct gemm_args {
    struct gemm_part parts[GEMM_MAX_PARTS];
    uint32_t n_parts, n_tiles; /* n_tiles: number of row tiles of all parts together */
    /* If true, there are two parts of equal n, gate and up. Their row tiles alternate, so that a
     * block has both numbers of an output; parts[0].out = act(gate) * up, in bfloat16. */
    uint32_t is_gated;
    enum activation act;
    float limit;
    const uint16_t *x;
    uint32_t x_stride, x_is_aligned; /* x_is_aligned: rows lie at multiples of 16 bytes */
    uint32_t n_rows, k, group;
    uint32_t groups_inverse;   /* 2^32 / (group / GPU_STEP_K), rounded up; 0: the quotient is one */
    uint32_t warps_k, n_steps; /* warps along K (1, 2, 4 or 8); steps of all these warps over K */
    uint32_t n_stages;         /* number of stages of the ring: 2 .. GEMM_MOST_STAGES */
    float *partial;            /* shape [split][row][16 * n_tiles]; NULL: there is one split */
    uint32_t *arrived;         /* shape [blocks over outputs]: zero before and after a launch */
};

/* GROUP is the number of inputs that share a scale, as far as a kernel must know this number.
 * GROUP is 16, 32, or GPU_STEP_K for that number and its multiples. */
template <enum gpu_format F, uint32_t GROUP> struct gemm_traits {
    using W = weights_traits<F>;
    static constexpr uint32_t CODE_BYTES = 2048; /* bytes of codes of a row tile in a step */
    /* STEP_K is the number of inputs of a step. */
    static constexpr uint32_t STEP_K = W::PLAIN ? 64 : W::NIBBLES ? 256 : 128;
    /* GROUP_BYTES is the size of the scales of a row tile and group. */
    static constexpr uint32_t GROUP_BYTES = GPU_TILE_N * W::SCALE_BYTES;
    static constexpr uint32_t SCALE_BYTES = W::PLAIN ? 0 : STEP_K / GROUP * GROUP_BYTES;
    static constexpr uint32_t TILE_BYTES = CODE_BYTES + SCALE_BYTES;
};
template <enum gpu_format F, uint32_t GROUP>
__host__ __device__ inline uint32_t gemm_stage_bytes(uint32_t mt, const gemm_args &a)
{
    using T = gemm_traits<F, GROUP>;
    return GEMM_WARPS * mt * T::TILE_BYTES + a.n_rows * a.warps_k * T::STEP_K * 2;
}

/* Returns the number of blocks that a multiprocessor holds, limited by registers, for NB times 8
 * rows (the launch bounds). */
__host__ __device__ constexpr uint32_t gemm_blocks_of(uint32_t nb)
{
    return nb <= 2 ? 2 : 1;
}

/* GEMM_PREFETCH_BYTES is the number of bytes of weights, for each multiprocessor, that are
 * prefetched before the previous kernel has ended. These bytes follow a block's first step and
 * are 2 to 4 steps. During a kernel without weights (a norm, a merge, an activation), the memory
 * is idle for 2 to 5 us. In that time, the memory could deliver 2 to 5 times 23 KB to each of
 * 132 multiprocessors. More bytes would wait in L2 while the memory is idle, because the ring
 * loads nothing from memory until it has passed these steps. The effect was not measured. */
static constexpr uint32_t GEMM_PREFETCH_BYTES = 128 << 10;
template <enum gpu_format F, uint32_t GROUP>
__host__ __device__ constexpr uint32_t gemm_prefetched(uint32_t nb, uint32_t mt)
{
    const uint32_t step = GEMM_WARPS * mt * gemm_traits<F, GROUP>::TILE_BYTES;
    return (GEMM_PREFETCH_BYTES / gemm_blocks_of(nb) + step - 1) / step;
}

/* 16-byte chunks of a row of activations are permuted so that a warp's reads have no bank
 * conflicts. A read takes 8 rows (ldmatrix), or 2 rows and 4 chunks (16 bytes a lane). */
template <enum gpu_format F>
__device__ __forceinline__ uint32_t gemm_place(uint32_t row, uint32_t c)
{
    return weights_traits<F>::PLAIN ? c ^ (row & 1) << 2 : c ^ (row & 7);
}
