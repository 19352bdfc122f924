#pragma once
/* Merges and stores the results of warps, for tile.cuh. */
#include "kernels/cuda/attention/shape.cuh"

/* Stores the results of warps with different rows. */
template <class S>
__device__ inline void tile_store(const attention_args &a, const attention_task &t,
                                  const tile_state<S> &w, uint32_t m_warp)
{
    const uint32_t g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = m_warp + m * 16 + half * 8 + g;
            if (row >= t.n_m)
                continue;
            const row_result r = result_begin(a, t, row, w.max[m][half], w.sum[m][half], t4 == 0);
#pragma unroll
            for (uint32_t d = 0; d < S::DV / 8; d++)
                result_store(a, r, d * 8 + t4 * 2, w.o[m][d][2 * half], w.o[m][d][2 * half + 1]);
        }
}

/* Stores the results of warps that share the same 16 rows and have different tokens. The results
 * are added through shared memory. */
template <class S>
__device__ inline void tile_merge(const attention_args &a, const attention_task &t,
                                  const tile_state<S> &w, float *room)
{
    constexpr uint32_t LD = S::MERGE_LD, PAIRS = S::D / 2;
    float *sums = room + S::WN * 16 * LD; /* `sums` has the shape [warp][row]: maximum, sum */
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    __syncthreads(); /* all warps have read the last unit, so `room` may be written */
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        float *o = room + (warp * 16 + half * 8 + g) * LD + t4 * 2;
#pragma unroll
        for (uint32_t d = 0; d < S::D / 8; d++)
            *reinterpret_cast<float2 *>(o + d * 8) =
                make_float2(w.o[0][d][2 * half], w.o[0][d][2 * half + 1]);
        if (t4 == 0) {
            sums[(warp * 16 + half * 8 + g) * 2] = w.max[0][half];
            sums[(warp * 16 + half * 8 + g) * 2 + 1] = w.sum[0][half];
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < t.n_m * PAIRS; i += S::THREADS) {
        const uint32_t row = i / PAIRS, d = i % PAIRS * 2;
        float max = -INFINITY, sum = 0.0f, x = 0.0f, y = 0.0f;
#pragma unroll
        for (uint32_t k = 0; k < S::WN; k++)
            max = fmaxf(max, sums[(k * 16 + row) * 2]);
        const float shift = max == -INFINITY ? 0.0f : max;
#pragma unroll
        for (uint32_t k = 0; k < S::WN; k++) {
            const float share = exp2f(sums[(k * 16 + row) * 2] - shift);
            const float2 o = *reinterpret_cast<const float2 *>(room + (k * 16 + row) * LD + d);
            sum = fmaf(sums[(k * 16 + row) * 2 + 1], share, sum);
            x = fmaf(o.x, share, x);
            y = fmaf(o.y, share, y);
        }
        result_store(a, result_begin(a, t, row, max, sum, d == 0), d, x, y);
    }
}
