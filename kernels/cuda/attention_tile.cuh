#pragma once
/* Attention of one chunk of a tile's packed rows over one split, for heads of up to 256 dimensions.
 * WM warps have 16 MT packed rows each; WN warps share out the tokens of a unit and have a result
 * each, merged through shared memory at the end (decode, where 16 rows are all there is).
 *
 * How bytes move: a unit of BN tokens, keys and values, comes by 16-byte asynchronous copies into
 * one of two buffers while the other is worked on: neighbouring threads take neighbouring 16 bytes
 * of a token. There is one barrier for each unit. Rows in shared memory are 16 bytes longer than D
 * elements: an odd number of 16-byte words, so the 8 rows of an ldmatrix lie in 8 different groups
 * of banks. Where a token lies is looked up by one thread of the block, a unit before its copies
 * are begun. P goes from the scores' registers to the second product's as it is. */
#include "kernels/cuda/attention_steps.cuh"

template <class S>
__device__ inline void unit_load(const attention_args &a, const attention_task &t,
                                 const tile_shared<S> &s, uint32_t unit)
{
    const uint32_t b = unit % 2, key = unit * S::BN;
    const token_place *places = s.places + b * S::BN;
    tokens_load<S::D, S::BN, S::THREADS>(a, t, a.k, a.k_scales, key, places,
                                         s.k + b * S::BN * S::LD);
    if (!a.is_latent)
        tokens_load<S::D, S::BN, S::THREADS>(a, t, a.v, a.v_scales, key, places,
                                             s.v + b * S::BN * S::LD);
    if (a.k_scales && !a.is_latent && threadIdx.x < S::BN) {
        const uint32_t i = b * S::BN + threadIdx.x;
        const bool valid = key + threadIdx.x >= t.first_key && key + threadIdx.x <= t.last_key;
        s.k_scales[i] = valid ? *scale_at(a, a.k_scales, t, s.places[i]) : 0.0f;
        s.v_scales[i] = valid ? *scale_at(a, a.v_scales, t, s.places[i]) : 0.0f;
    }
    cp_async_commit();
}

/* Results of warps that have rows of their own. */
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
            for (uint32_t d = 0; d < S::D / 8; d++)
                result_store(a, r, d * 8 + t4 * 2, w.o[m][d][2 * half], w.o[m][d][2 * half + 1]);
        }
}

/* Results of warps that have the same 16 rows and other tokens: added through shared memory. */
template <class S>
__device__ inline void tile_merge(const attention_args &a, const attention_task &t,
                                  const tile_state<S> &w, float *room)
{
    constexpr uint32_t LD = S::MERGE_LD, PAIRS = S::D / 2;
    float *sums = room + S::WN * 16 * LD; /* [warp][row]: maximum, sum */
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    __syncthreads(); /* the last unit is read */
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

template <class S>
__device__ inline void tile_begin(const attention_args &a, const attention_task &t,
                                  const tile_shared<S> &s, tile_state<S> &w, uint32_t m_warp)
{
    queries_load<S::D, S::BM, S::THREADS>(a, t, s.q);
    if (threadIdx.x < S::BN)
        s.places[t.unit % 2 * S::BN + threadIdx.x] = token_find(a, t, t.unit * S::BN + threadIdx.x);
    __syncthreads();
    unit_load<S>(a, t, s, t.unit);
    if (threadIdx.x < S::BN)
        s.places[(t.unit + 1) % 2 * S::BN + threadIdx.x] =
            token_find(a, t, (t.unit + 1) * S::BN + threadIdx.x);
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            w.max[m][half] = -INFINITY, w.sum[m][half] = 0.0f;
            w.position[m][half] = row_position(t, m_warp + m * 16 + half * 8 + lane / 4);
#pragma unroll
            for (uint32_t d = 0; d < S::D / 8; d++)
                w.o[m][d][2 * half] = w.o[m][d][2 * half + 1] = 0.0f;
        }
    if (S::KEEP_Q)
#pragma unroll
        for (uint32_t d = 0; d < (S::KEEP_Q ? S::D / 16 : 1); d++)
            ldmatrix_x4(w.q[d], s.q + (m_warp + lane % 16) * S::LD + d * 16 + lane / 16 * 8);
}

template <class S>
__global__ __launch_bounds__(S::THREADS,
                             S::BLOCKS) void attention_tile_kernel(const attention_args a)
{
    CUDA_DYNAMIC_SHARED(uint8_t, smem);
    const tile_shared<S> s(smem);
    attention_task t;
    tile_state<S> w;
    dependency_launch();
    dependency_wait();
    if (!task_find(a, S::BM, S::BN, &t))
        return;
    if (t.unit == t.end_unit) {
        results_empty(a, t);
        return;
    }
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t m_warp = warp % S::WM * 16 * S::MT, n_warp = warp / S::WM * S::NT * 8;
    const float to_exponent = a.softcap > 0.0f ? LOG2E : a.scale * LOG2E;
    tile_begin<S>(a, t, s, w, m_warp);
    for (uint32_t unit = t.unit; unit < t.end_unit; unit++) {
        const uint32_t b = unit % 2, at = b * S::BN + n_warp;
        cp_async_wait<0>();
        __syncthreads(); /* this unit is there; the one before is read */
        if (unit + 1 < t.end_unit)
            unit_load<S>(a, t, s, unit + 1);
        token_place ahead = {0, 0};
        if (threadIdx.x < S::BN && unit + 2 < t.end_unit)
            ahead = token_find(a, t, (unit + 2) * S::BN + threadIdx.x);
        float scores[S::MT][S::NT][4];
        const bool scaled = a.k_scales && !a.is_latent;
        unit_scores<S>(w, s.q + m_warp * S::LD, s.k + at * S::LD, scores);
        unit_mask<S>(a, t, w, scaled ? s.k_scales + at : nullptr, unit * S::BN + n_warp, scores);
        unit_softmax<S>(w, to_exponent, scores);
        unit_values<S>(w, (a.is_latent ? s.k : s.v) + at * S::LD,
                       scaled ? s.v_scales + at : nullptr, scores);
        if (threadIdx.x < S::BN)
            s.places[b * S::BN + threadIdx.x] = ahead;
    }
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            w.sum[m][half] = lanes_sum<4>(w.sum[m][half]);
    if (S::WN == 1)
        tile_store<S>(a, t, w, m_warp);
    else
        tile_merge<S>(a, t, w, reinterpret_cast<float *>(s.k));
}
