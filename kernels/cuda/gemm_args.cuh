#pragma once
/* What the products of gemm.cuh are told, and the sizes of what they keep in shared memory. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/formats.cuh"

static constexpr uint32_t GEMM_WARPS = 8, GEMM_THREADS = 32 * GEMM_WARPS;
static constexpr uint32_t GEMM_MAX_PARTS = LINEAR_MAX_PARTS;

struct gemm_part {
    const uint8_t *codes, *scales;
    const float *bias; /* or NULL */
    void *out;         /* bfloat16, or float */
    uint32_t out_stride, n, first_tile, tile_bytes, to_float;
};
struct gemm_args {
    struct gemm_part parts[GEMM_MAX_PARTS];
    uint32_t n_parts, n_tiles; /* row tiles of all parts, one after the other */
    const uint16_t *x;
    uint32_t x_stride, x_is_aligned; /* rows at multiples of 16 bytes */
    uint32_t n_rows, k, group;
    uint32_t warps_k, n_steps; /* warps along K: 1, 2, 4, 8; steps of all of them over K */
    uint32_t n_stages;         /* of the ring: 2, 3, 4, 6 */
    float *partial;            /* [split][row][16 * n_tiles]; NULL: one split */
    uint32_t *arrived;         /* [blocks over outputs], zero before and after */
};

template <enum gpu_format F> struct gemm_traits {
    using W = weights_traits<F>;
    static constexpr uint32_t STEP_K = W::PLAIN ? 64 : GPU_STEP_K; /* a warp's inputs of a step */
    static constexpr uint32_t CODE_BYTES = W::NIBBLES ? 1024 : 2048;
    static constexpr uint32_t MOST_STAGES = W::NIBBLES ? 6 : 4; /* of 2, 3, 4, 6 */
};
/* Scales of a row tile for a step. */
template <enum gpu_format F> __host__ __device__ inline uint32_t gemm_scale_bytes(uint32_t group)
{
    constexpr uint32_t per_group = GPU_TILE_N * weights_traits<F>::SCALE_BYTES;
    return weights_traits<F>::PLAIN ? 0
           : group < GPU_STEP_K     ? GPU_STEP_K / group * per_group
                                    : per_group;
}
template <enum gpu_format F>
__host__ __device__ inline uint32_t gemm_weight_bytes(uint32_t mt, uint32_t group)
{
    return mt * (gemm_traits<F>::CODE_BYTES + gemm_scale_bytes<F>(group));
}
template <enum gpu_format F>
__host__ __device__ inline uint32_t gemm_stage_bytes(uint32_t mt, const gemm_args &a)
{
    return GEMM_WARPS * gemm_weight_bytes<F>(mt, a.group) +
           a.n_rows * a.warps_k * gemm_traits<F>::STEP_K * 2;
}

/* 16-byte chunks of a row of activations are exchanged so that a warp's reads meet in no bank:
 * of 8 rows (ldmatrix), or of 2 rows and 4 chunks (16 bytes a lane). */
template <enum gpu_format F>
__device__ __forceinline__ uint32_t gemm_place(uint32_t row, uint32_t c)
{
    return weights_traits<F>::PLAIN ? c ^ (row & 1) << 2 : c ^ (row & 7);
}
