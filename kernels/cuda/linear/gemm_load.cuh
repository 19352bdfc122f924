#pragma once
/* Implements the loads of gemm.cuh: a warp's copies from global into shared memory. In a decode
 * step, the address computations are overhead for every KB of weights. An address costs one
 * product and one addition, and only the end of K needs conditions. */
#include "kernels/cuda/linear/gemm_args.cuh"

/* `gemm_tile` holds a lane's addresses in one row tile: codes from the lane's own first 16 bytes
 * on (BF16: in row g). */
struct gemm_tile {
    const uint8_t *codes, *scales;
    bool is_there;
};

template <enum gpu_format F>
__device__ __forceinline__ gemm_tile gemm_tile_of(const gemm_args &a, uint32_t tile, uint32_t lane)
{
    gemm_tile t = {a.parts[0].codes, a.parts[0].scales, tile < a.n_tiles};
#pragma unroll
    for (uint32_t i = 0; i < GEMM_MAX_PARTS; i++) {
        const uint32_t first = a.is_gated ? 0 : a.parts[i].first_tile;
        const bool is_of = a.is_gated ? i == tile % 2 : i < a.n_parts && tile >= first;
        if (t.is_there && is_of) {
            const size_t own = a.is_gated ? tile / 2 : tile - first;
            const size_t at = own * a.parts[i].tile_bytes;
            t.codes = a.parts[i].codes + at;
            t.scales = a.parts[i].scales + at;
        }
    }
    t.codes += weights_traits<F>::PLAIN ? (size_t)(lane / 4) * ((a.k + 7) / 8 * 16) + lane % 4 * 16
                                        : 16 * lane;
    return t;
}

/* Loads rows g and g + 8, two times 32 inputs, from k0 on; `to` is the lane's place. */
__device__ __forceinline__ void gemm_load_rows(const gemm_args &a, const gemm_tile &t, uint32_t k0,
                                               uint32_t lane, uint8_t *to)
{
    const uint8_t *low = t.codes + 2 * (size_t)k0, *high = low + (size_t)(a.k + 7) / 8 * 128;
    if (t.is_there && k0 + 64 <= a.k) {
        cp_async_16(to, low, true);
        cp_async_16(to + 512, low + 64, true);
        cp_async_16(to + 1024, high, true);
        cp_async_16(to + 1536, high + 64, true);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const bool valid = t.is_there && k0 + 32 * (i % 2) + 8 * (lane % 4) < a.k;
        cp_async_16(to + 512 * i, valid ? (i < 2 ? low : high) + 64 * (i % 2) : t.codes, valid);
    }
}

/* Loads codes and scales of inputs k0 .. k0 + STEP_K - 1 of a row tile; `to` is the lane's
 * place. */
template <enum gpu_format F, uint32_t GROUP>
__device__ __forceinline__ void gemm_load_tile(const gemm_args &a, const gemm_tile &t, uint32_t k0,
                                               uint32_t lane, uint8_t *to)
{
    using T = gemm_traits<F, GROUP>;
    if constexpr (weights_traits<F>::PLAIN) {
        gemm_load_rows(a, t, k0, lane, to);
    } else {
        constexpr uint32_t TILE_K = weights_traits<F>::TILE_K, N = T::CODE_BYTES / 512;
        const uint8_t *codes = t.codes + (size_t)k0 * (512 / TILE_K);
        const bool whole = t.is_there && k0 + T::STEP_K <= a.k;
        if (whole) {
#pragma unroll
            for (uint32_t i = 0; i < N; i++)
                cp_async_16(to + 512 * i, codes + 512 * i, true);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < N; i++) {
                const bool valid = t.is_there && k0 + i * TILE_K < a.k;
                cp_async_16(to + 512 * i, valid ? codes + 512 * i : t.codes, valid);
            }
        }
#pragma unroll
        for (uint32_t at = 16 * lane; at < T::SCALE_BYTES; at += 512) {
            const uint32_t i = at / T::GROUP_BYTES;
            uint32_t i_group = k0 / GROUP + i;
            if (GROUP == GPU_STEP_K && a.groups_inverse != 0)
                i_group = __umulhi(i_group, a.groups_inverse);
            const bool valid = whole || (t.is_there && k0 + i * GROUP < a.k);
            const uint8_t *from = t.scales + i_group * T::GROUP_BYTES + at % T::GROUP_BYTES;
            cp_async_16(to + T::CODE_BYTES + at - 16 * lane, valid ? from : t.codes, valid);
        }
    }
}

/* Prefetches into the L2 cache the data that gemm_load_tile copies. A lane prefetches 64 bytes,
 * so one instruction is enough for the codes of a row tile and one for its scales. A fill of
 * that cache may load only 64 bytes of a line of 128, so each half is requested. */
template <enum gpu_format F, uint32_t GROUP>
__device__ __forceinline__ void gemm_prefetch_tile(const gemm_args &a, const gemm_tile &t,
                                                   uint32_t k0, uint32_t lane)
{
    using T = gemm_traits<F, GROUP>;
    constexpr uint32_t TILE_K = weights_traits<F>::TILE_K;
    static_assert(T::CODE_BYTES == 32 * 64 && T::SCALE_BYTES <= 32 * 64, "64 bytes a lane");
    if (!t.is_there)
        return;
    if constexpr (weights_traits<F>::PLAIN) { /* lane % 4 selects a half of row g or of row g + 8 */
        const uint32_t half = lane % 2, high = lane % 4 / 2;
        if (k0 + 32 * half + 8 * (lane % 4) < a.k)
            prefetch_l2(t.codes + 2 * (size_t)k0 + 64 * half +
                        high * ((size_t)(a.k + 7) / 8 * 128));
    } else {
        const uint32_t at = 64 * lane, i = at / T::GROUP_BYTES;
        if (k0 + at / 512 * TILE_K < a.k) /* t.codes already includes 16 * lane */
            prefetch_l2(t.codes + (size_t)k0 * (512 / TILE_K) + 48 * lane);
        uint32_t i_group = k0 / GROUP + i;
        if (GROUP == GPU_STEP_K && a.groups_inverse != 0)
            i_group = __umulhi(i_group, a.groups_inverse);
        if (at < T::SCALE_BYTES && k0 + i * GROUP < a.k)
            prefetch_l2(t.scales + (size_t)i_group * T::GROUP_BYTES + at % T::GROUP_BYTES);
    }
}

/* Returns eight elements of a row of activations from k on. Elements from n on are zero. */
__device__ __forceinline__ uint4 gemm_elements(const uint16_t *from, uint32_t k, uint32_t n)
{
    uint32_t e[8];
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        e[j] = k + j < n ? from[k + j] : 0u;
    return make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
}

/* Loads inputs k0 .. k0 + 2^log_chunks * 8 - 1 of all rows. Inputs from a.k on are zero. A
 * thread loads the same chunk in each of its rows. */
template <enum gpu_format F>
__device__ __forceinline__ void gemm_load_x(const gemm_args &a, uint32_t k0, uint32_t log_chunks,
                                            uint8_t *to)
{
    const uint32_t c = threadIdx.x & ((1u << log_chunks) - 1), k = k0 + 8 * c;
    const uint32_t rows_at_once = GEMM_THREADS >> log_chunks;
    for (uint32_t row = threadIdx.x >> log_chunks; row < a.n_rows; row += rows_at_once) {
        const uint16_t *from = a.x + (size_t)row * a.x_stride;
        uint8_t *place = to + ((row << log_chunks) + gemm_place<F>(row, c)) * 16;
        if (a.x_is_aligned && k + 8 <= a.k)
            cp_async_16(place, from + k, true);
        else
            *reinterpret_cast<uint4 *>(place) = gemm_elements(from, k, a.k);
    }
}

/* Waits until the oldest of n_ahead steps has arrived. */
__device__ __forceinline__ void gemm_wait(uint32_t n_ahead)
{
    static_assert(GEMM_MOST_STAGES == 4, "every number of steps ahead");
    if (n_ahead == 3)
        cp_async_wait<2>();
    else if (n_ahead == 2)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
}
