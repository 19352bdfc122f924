#pragma once
/* Computes attention of one chunk of a tile's packed rows over one split, for heads of up to 256
 * dimensions. Each of WM warps has 16 MT packed rows. WN warps divide the tokens of a unit among
 * them. Each of these warps has its own result, and the results are merged through shared memory
 * at the end (decode, with only 16 rows).
 *
 * Movement of bytes: asynchronous 16-byte copies load a unit of BN tokens, keys and values, into
 * one of two buffers while the other buffer is used. Neighbouring threads copy neighbouring 16
 * bytes of a token. There is one barrier for each unit. Rows in shared memory are 16 bytes
 * longer than D elements. They then have an odd number of 16-byte words, and the 8 rows of an
 * ldmatrix are in 8 different groups of banks. One thread of the block looks up the place of a
 * token, one unit before its copies start. codes.cuh handles 1-byte codes. The second product
 * reads P directly from the registers of the scores. */
#include "kernels/cuda/attention/result.cuh"
#include "kernels/cuda/attention/steps.cuh"

/* Starts the copies of a unit. */
template <class S>
__device__ inline void unit_load(const attention_args &a, const attention_task &t,
                                 const tile_shared<S> &s, uint32_t unit)
{
    const uint32_t b = unit % 2, key = unit * S::BN;
    const token_place *places = s.places + unit % 4 * S::BN;
    if (a.is_staged) {
        uint8_t *codes = s.codes + b * 2 * S::BN * S::D;
        codes_load<S::D, S::BN, S::THREADS>(a, t, a.k, key, places, codes);
        codes_load<S::D, S::BN, S::THREADS>(a, t, a.v, key, places, codes + S::BN * S::D);
    } else {
        tokens_load<S::D, S::BN, S::THREADS>(a, t, a.k, a.k_scales, key, places,
                                             s.k + b * S::BN * S::LD);
        if (!a.is_latent)
            tokens_load<S::D, S::BN, S::THREADS>(a, t, a.v, a.v_scales, key, places,
                                                 s.v + b * S::BN * S::LD);
    }
    cp_async_commit();
}

/* Converts a unit of codes, which has arrived, to bfloat16. */
template <class S>
__device__ inline void unit_convert(const attention_args &a, const tile_shared<S> &s, uint32_t unit)
{
    const uint32_t b = unit % 2;
    const uint8_t *codes = s.codes + b * 2 * S::BN * S::D;
    codes_convert<S::D, S::BN, S::THREADS>(a, codes, nullptr, s.k + b * S::BN * S::LD);
    codes_convert<S::D, S::BN, S::THREADS>(a, codes + S::BN * S::D, nullptr,
                                           s.v + b * S::BN * S::LD);
}

template <class S>
__device__ inline void scales_store(const attention_args &a, const tile_shared<S> &s, uint32_t unit,
                                    float2 scales)
{
    if (!a.k_scales)
        return; /* without codes, there are no scales to load */
    s.k_scales[unit % 2 * S::BN + threadIdx.x] = scales.x;
    s.v_scales[unit % 2 * S::BN + threadIdx.x] = scales.y;
}

/* Starts the first unit. With codes it starts the second unit too and converts the first to
 * bfloat16. The places of one more unit are looked up. */
template <class S>
__device__ inline void tile_begin(const attention_args &a, const attention_task &t,
                                  const tile_shared<S> &s, tile_state<S> &w, uint32_t m_warp)
{
    queries_load<S::D, S::BM, S::THREADS>(a, t, s.q);
    if (threadIdx.x < S::BN) {
        for (uint32_t unit = t.unit; unit < t.unit + (a.is_staged ? 3 : 2); unit++)
            s.places[unit % 4 * S::BN + threadIdx.x] = token_find(a, t, unit * S::BN + threadIdx.x);
        scales_store<S>(a, s, t.unit,
                        scales_fetch(a, t, t.unit * S::BN + threadIdx.x,
                                     s.places[t.unit % 4 * S::BN + threadIdx.x]));
    }
    __syncthreads();
    unit_load<S>(a, t, s, t.unit);
    if (a.is_staged)
        unit_load<S>(a, t, s, t.unit + 1);
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
    if (a.is_staged) {
        cp_async_wait<1>();
        __syncthreads();
        unit_convert<S>(a, s, t.unit);
    }
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
    const uint32_t warp = threadIdx.x / 32, n_ahead = a.is_staged ? 2 : 1;
    const uint32_t m_warp = warp % S::WM * 16 * S::MT, n_warp = warp / S::WM * S::NT * 8;
    const float to_exponent = a.softcap > 0.0f ? LOG2E : a.scale * LOG2E;
    const bool scaled = a.k_scales && !a.is_latent;
    tile_begin<S>(a, t, s, w, m_warp);
    for (uint32_t unit = t.unit; unit < t.end_unit; unit++) {
        const uint32_t at = unit % 2 * S::BN + n_warp, ahead = unit + n_ahead;
        token_place place = {0, 0};
        float2 scales = make_float2(0.0f, 0.0f);
        cp_async_wait<0>();
        /* this unit has arrived (with codes, the next unit), and all warps have read the unit
         * before */
        __syncthreads();
        if (ahead < t.end_unit)
            unit_load<S>(a, t, s, ahead);
        if (threadIdx.x < S::BN && unit + 1 < t.end_unit) {
            place = token_find(a, t, (ahead + 1) * S::BN + threadIdx.x);
            scales = scales_fetch(a, t, (unit + 1) * S::BN + threadIdx.x,
                                  s.places[(unit + 1) % 4 * S::BN + threadIdx.x]);
        }
        if (a.is_staged && unit + 1 < t.end_unit)
            unit_convert<S>(a, s, unit + 1);
        float scores[S::MT][S::NT][4];
        unit_scores<S>(w, s.q + m_warp * S::LD, s.k + at * S::LD, scores);
        unit_mask<S>(a, t, w, scaled ? s.k_scales + at : nullptr, unit * S::BN + n_warp, scores);
        unit_softmax<S>(w, to_exponent, scores);
        unit_values<S>(w, (a.is_latent ? s.k : s.v) + at * S::LD,
                       scaled ? s.v_scales + at : nullptr, scores);
        if (threadIdx.x < S::BN) {
            s.places[(ahead + 1) % 4 * S::BN + threadIdx.x] = place;
            scales_store<S>(a, s, unit + 1, scales);
        }
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
