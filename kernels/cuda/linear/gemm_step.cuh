#pragma once
/* Implements the steps of gemm.cuh: a warp's products, from shared memory. */
#include "kernels/cuda/linear/gemm_args.cuh"

/* `gemm_step` holds the operands of a warp in one step. */
struct gemm_step {
    const uint8_t *weights; /* codes and then scales, for each row tile of the warp */
    const uint8_t *x;       /* activations of the block's n_rows rows, row_bytes apart */
    uint32_t n_rows, row_bytes;
    uint32_t first_chunk, lane; /* first_chunk: chunk at which the warp's inputs begin in a row */
};

template <uint32_t NB> __device__ __forceinline__ void gemm_clear(float (&sums)[NB][4])
{
#pragma unroll
    for (uint32_t nb = 0; nb < NB; nb++)
        sums[nb][0] = sums[nb][1] = sums[nb][2] = sums[nb][3] = 0.0f;
}

/* Returns the row to read. Beyond the last row, the last row is read again, and the sums of such
 * rows are dropped. */
__device__ __forceinline__ uint32_t gemm_row(uint32_t row, uint32_t n_rows)
{
    return row < n_rows ? row : n_rows - 1;
}

/* Multiplies a warp's step of plain numbers. */
template <uint32_t NB, uint32_t MT>
__device__ __forceinline__ void gemm_plain_step(const gemm_step &s, float (&sums)[MT][NB][4])
{
#pragma unroll
    for (uint32_t u = 0; u < 2; u++) {
        uint4 w[MT][2];
#pragma unroll
        for (uint32_t m = 0; m < MT; m++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++)
                w[m][h] = *reinterpret_cast<const uint4 *>(
                    s.weights + m * gemm_traits<GPU_BF16, GPU_STEP_K>::TILE_BYTES +
                    512 * (2 * h + u) + 16 * s.lane);
#pragma unroll
        for (uint32_t nb = 0; nb < NB; nb++) {
            const uint32_t row = gemm_row(nb * 8 + s.lane / 4, s.n_rows);
            const uint32_t c = gemm_place<GPU_BF16>(row, s.first_chunk + 4 * u + s.lane % 4);
            const uint4 v = *reinterpret_cast<const uint4 *>(s.x + row * s.row_bytes + 16 * c);
#pragma unroll
            for (uint32_t m = 0; m < MT; m++) {
                const uint32_t low[4] = {w[m][0].x, w[m][1].x, w[m][0].y, w[m][1].y};
                const uint32_t high[4] = {w[m][0].z, w[m][1].z, w[m][0].w, w[m][1].w};
                const uint32_t b_low[2] = {v.x, v.y}, b_high[2] = {v.z, v.w};
                mma_bf16_16816(sums[m][nb], low, b_low);
                mma_bf16_16816(sums[m][nb], high, b_high);
            }
        }
    }
}

/* Adds the scaled sums of a group to the total. */
template <enum gpu_format F, uint32_t NB>
__device__ __forceinline__ void gemm_scale(const weights_scale &s, const float (&group)[NB][4],
                                           const float (&ones)[NB][4], float (&sums)[NB][4])
{
#pragma unroll
    for (uint32_t nb = 0; nb < NB; nb++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            sums[nb][i] = fmaf(s.scale[i / 2], group[nb][i], sums[nb][i]);
            if (weights_traits<F>::HAS_OFFSET)
                sums[nb][i] = fmaf(s.offset[i / 2], ones[nb][i], sums[nb][i]);
        }
}

/* Loads the b operands of the s-th 16 inputs, counted from `first`. ldmatrix reads row j of
 * matrix i from lane 8i + j. The four matrices are two times eight rows. With at most eight rows
 * the four matrices are two times 16 inputs, and the odd operands are already in `more`. */
template <enum gpu_format F, uint32_t NB>
__device__ __forceinline__ void gemm_load_b(const gemm_step &step, uint32_t first, uint32_t s,
                                            uint32_t (&more)[2], uint32_t (&b)[NB][2])
{
    const uint32_t i = step.lane / 8;
    if (NB == 1 && s % 2 == 1) {
        b[0][0] = more[0], b[0][1] = more[1];
        return;
    }
#pragma unroll
    for (uint32_t nb = 0; nb < NB; nb += 2) {
        const uint32_t at = nb * 8 + (NB > 1 ? i / 2 * 8 : 0) + step.lane % 8;
        const uint32_t row = gemm_row(at, step.n_rows);
        const uint32_t c =
            gemm_place<F>(row, step.first_chunk + 2 * (first + s) + (NB > 1 ? i % 2 : i));
        uint32_t r[4];
        ldmatrix_x4(r, step.x + row * step.row_bytes + 16 * c);
        b[nb][0] = r[0], b[nb][1] = r[1];
        if constexpr (NB > 1)
            b[nb + 1][0] = r[2], b[nb + 1][1] = r[3];
        more[0] = r[2], more[1] = r[3];
    }
}

/* Multiplies the i-th 128 inputs of a warp's step of codes. These inputs are whole groups. */
template <enum gpu_format F, uint32_t GROUP, uint32_t NB, uint32_t MT>
__device__ __forceinline__ void gemm_coded_part(const gemm_step &step, uint32_t i,
                                                float (&sums)[MT][NB][4])
{
    using T = gemm_traits<F, GROUP>;
    constexpr uint32_t WORDS = weights_traits<F>::WORDS, PER_LOAD = 4 / WORDS;
    constexpr uint32_t STEPS = GPU_STEP_K / 16, PER_GROUP = GROUP / 16;
    const uint8_t *codes = step.weights + i * STEPS / PER_LOAD * 512 + 16 * step.lane;
    const uint8_t *scales = step.weights + T::CODE_BYTES + i * STEPS / PER_GROUP * T::GROUP_BYTES;
    float part[MT][NB][4], ones[NB][4];
    weights_scale scale[MT];
    uint32_t words[MT][4], b[NB][2], more[2];
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        const bool begins = s % PER_GROUP == 0, ends = s % PER_GROUP == PER_GROUP - 1;
        gemm_load_b<F, NB>(step, i * STEPS, s, more, b);
        if (weights_traits<F>::HAS_OFFSET) {
            const uint32_t a[4] = {FRAGMENT_ONES, FRAGMENT_ONES, FRAGMENT_ONES, FRAGMENT_ONES};
            if (begins)
                gemm_clear(ones);
#pragma unroll
            for (uint32_t nb = 0; nb < NB; nb++)
                mma_bf16_16816(ones[nb], a, b[nb]);
        }
#pragma unroll
        for (uint32_t m = 0; m < MT; m++) {
            if (s % PER_LOAD == 0) {
                const uint4 v = *reinterpret_cast<const uint4 *>(codes + m * T::TILE_BYTES +
                                                                 s / PER_LOAD * 512);
                words[m][0] = v.x, words[m][1] = v.y, words[m][2] = v.z, words[m][3] = v.w;
            }
            if (begins) {
                scale[m] = weights_scales<F>(
                    scales + m * T::TILE_BYTES + s / PER_GROUP * T::GROUP_BYTES, step.lane / 4);
                gemm_clear(part[m]);
            }
            uint32_t a[4];
            weights_fragment<F>(a, words[m] + s % PER_LOAD * WORDS, scale[m]);
#pragma unroll
            for (uint32_t nb = 0; nb < NB; nb++)
                mma_bf16_16816(part[m][nb], a, b[nb]);
            if (ends)
                gemm_scale<F>(scale[m], part[m], ones, sums[m]);
        }
    }
}

template <enum gpu_format F, uint32_t GROUP, uint32_t NB, uint32_t MT>
__device__ __forceinline__ void gemm_coded_step(const gemm_step &step, float (&sums)[MT][NB][4])
{
#pragma unroll 1 /* not unrolled: with many rows, both halves would not fit into registers */
    for (uint32_t i = 0; i < gemm_traits<F, GROUP>::STEP_K / GPU_STEP_K; i++)
        gemm_coded_part<F, GROUP, NB, MT>(step, i, sums);
}
