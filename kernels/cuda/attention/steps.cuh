#pragma once
/* Implements the steps of a warp in tile.cuh for one unit of tokens: scores, mask, softmax,
 * values. */
#include "kernels/cuda/attention/shape.cuh"

/* Computes scores = Q K^T for the warp's rows and tokens. */
template <class S>
__device__ inline void unit_scores(const tile_state<S> &w, const uint16_t *q, const uint16_t *k,
                                   float (&scores)[S::MT][S::NT][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *k_lane = k + (lane % 8 + lane / 16 * 8) * S::LD + lane / 8 % 2 * 8;
    const uint16_t *q_lane = q + lane % 16 * S::LD + lane / 16 * 8;
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                scores[m][n][i] = 0.0f;
#pragma unroll
    for (uint32_t d = 0; d < S::D / 16; d++) {
        uint32_t qf[S::MT][4];
#pragma unroll
        for (uint32_t m = 0; m < S::MT; m++) {
            if (S::KEEP_Q) {
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    qf[m][i] = w.q[S::KEEP_Q ? d : 0][i];
            } else {
                ldmatrix_x4(qf[m], q_lane + m * 16 * S::LD + d * 16);
            }
        }
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n += 2) {
            uint32_t kf[4];
            ldmatrix_x4(kf, k_lane + n * 8 * S::LD + d * 16);
            const uint32_t b0[2] = {kf[0], kf[1]}, b1[2] = {kf[2], kf[3]};
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++) {
                mma_bf16_16816(scores[m][n], qf[m], b0);
                mma_bf16_16816(scores[m][n + 1], qf[m], b1);
            }
        }
    }
}

/* Multiplies the scores by the keys' scales, unless these are NULL. Caps the scores, and sets
 * those that a row does not see to -inf. `key` is the warp's first token. */
template <class S>
__device__ inline void unit_mask(const attention_args &a, const attention_task &t,
                                 const tile_state<S> &w, const float *scales, uint32_t key,
                                 float (&scores)[S::MT][S::NT][4])
{
    const uint32_t t4 = threadIdx.x % 4;
    if (scales)
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    scores[m][n][i] *= scales[n * 8 + t4 * 2 + i % 2];
    if (a.softcap > 0.0f)
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    scores[m][n][i] = softcapped(scores[m][n][i] * a.scale, a.softcap);
    const uint32_t last = key + S::NT * 8 - 1;
    const uint32_t first_row_sees = (uint32_t)t.position + t.m_first / t.n_heads;
    if (last <= first_row_sees && key >= first_visible(a, t.last_key))
        return; /* every row sees all tokens of the unit */
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (!is_visible(a, (int32_t)(key + n * 8 + t4 * 2 + i % 2), w.position[m][i / 2]))
                    scores[m][n][i] = -INFINITY;
}

/* Does the online softmax: the scores become weights, and the state is updated to the new
 * maximum. `to_exponent` converts scores to exponents of two. The result is rescaled only when
 * the unit raises the maximum. */
template <class S>
__device__ inline void unit_softmax(tile_state<S> &w, float to_exponent,
                                    float (&scores)[S::MT][S::NT][4])
{
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++) {
        float old[2];
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            float most = -INFINITY;
#pragma unroll
            for (uint32_t n = 0; n < S::NT; n++)
                most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float max = fmaxf(w.max[m][half], most * to_exponent);
            /* max is -INFINITY while no key has been seen */
            const float shift = max == -INFINITY ? 0.0f : max;
            old[half] = exp2_fast(w.max[m][half] - shift);
            w.max[m][half] = max;
            float sum = w.sum[m][half] * old[half];
#pragma unroll
            for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
                for (uint32_t i = 2 * half; i < 2 * half + 2; i++) {
                    scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], to_exponent, -shift));
                    sum += scores[m][n][i];
                }
            w.sum[m][half] = sum;
        }
        if (!__any_sync(0xffffffffu, old[0] != 1.0f || old[1] != 1.0f))
            continue;
#pragma unroll
        for (uint32_t d = 0; d < S::DV / 8; d++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                w.o[m][d][i] *= old[i / 2];
    }
}

/* Computes o += P V. A value's scale is multiplied into its weight. */
template <class S>
__device__ inline void unit_values(tile_state<S> &w, const uint16_t *v, const float *scales,
                                   float (&scores)[S::MT][S::NT][4])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *v_lane = v + lane % 16 * S::LDV + lane / 16 * 8;
    if (scales)
#pragma unroll
        for (uint32_t n = 0; n < S::NT; n++)
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    scores[m][n][i] *= scales[n * 8 + lane % 4 * 2 + i % 2];
#pragma unroll
    for (uint32_t n = 0; n < S::NT; n += 2) {
        uint32_t p[S::MT][4];
#pragma unroll
        for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                p[m][i] =
                    pack_bf16(scores[m][n + i / 2][i % 2 * 2], scores[m][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t d = 0; d < S::DV / 16; d++) {
            uint32_t vf[4];
            ldmatrix_x4_trans(vf, v_lane + n * 8 * S::LDV + d * 16);
            const uint32_t b0[2] = {vf[0], vf[1]}, b1[2] = {vf[2], vf[3]};
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++) {
                mma_bf16_16816(w.o[m][2 * d], p[m], b0);
                mma_bf16_16816(w.o[m][2 * d + 1], p[m], b1);
            }
        }
    }
}
