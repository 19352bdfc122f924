#pragma once
/* Of gemm.cuh: what a warp asks for, from global into shared memory. */
#include "kernels/cuda/gemm_args.cuh"

/* What a warp reads of one row tile. */
template <enum gpu_format F> struct gemm_tile {
    const uint8_t *codes, *scales;
    bool is_there;
};

template <enum gpu_format F>
__device__ __forceinline__ gemm_tile<F> gemm_tile_of(const gemm_args &a, uint32_t tile)
{
    gemm_tile<F> t = {a.parts[0].codes, a.parts[0].scales, tile < a.n_tiles};
#pragma unroll
    for (uint32_t i = 0; i < GEMM_MAX_PARTS; i++) {
        if (i < a.n_parts && t.is_there && tile >= a.parts[i].first_tile) {
            const size_t at = (size_t)(tile - a.parts[i].first_tile) * a.parts[i].tile_bytes;
            t.codes = a.parts[i].codes + at;
            t.scales = a.parts[i].scales + at;
        }
    }
    return t;
}

/* Asks for the codes and scales of inputs k0 .. k0 + STEP_K of a row tile. */
template <enum gpu_format F>
__device__ __forceinline__ void gemm_load_tile(const gemm_args &a, const gemm_tile<F> &t,
                                               uint32_t k0, uint32_t lane, uint8_t *to)
{
    using T = gemm_traits<F>;
    if constexpr (weights_traits<F>::PLAIN) {
        const uint32_t row_bytes = (a.k + 7) / 8 * 16;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) { /* rows g and g + 8, two times 32 inputs */
            const uint32_t row = lane / 4 + 8 * (i / 2), k = k0 + 32 * (i % 2) + 8 * (lane % 4);
            const bool valid = t.is_there && k < a.k;
            const uint8_t *from = t.codes + (valid ? (size_t)row * row_bytes + 2 * k : 0);
            cp_async_16(to + 512 * i + 16 * lane, from, valid);
        }
    } else {
        constexpr uint32_t TILE_K = weights_traits<F>::TILE_K;
#pragma unroll
        for (uint32_t i = 0; i < T::CODE_BYTES / 512; i++) {
            const uint32_t k = k0 + i * TILE_K;
            const bool valid = t.is_there && k < a.k;
            const uint8_t *from = t.codes + (valid ? (size_t)(k / TILE_K) * 512 + 16 * lane : 0);
            cp_async_16(to + 512 * i + 16 * lane, from, valid);
        }
        const uint32_t per_group = GPU_TILE_N * weights_traits<F>::SCALE_BYTES;
        const uint32_t first = k0 / a.group * per_group,
                       end = (a.k + a.group - 1) / a.group * per_group;
        const uint32_t n_bytes = gemm_scale_bytes<F>(a.group);
        for (uint32_t at = 16 * lane; at < n_bytes; at += 512) {
            const bool valid = t.is_there && first + at < end;
            cp_async_16(to + T::CODE_BYTES + at, t.scales + (valid ? first + at : 0), valid);
        }
    }
}

/* Inputs k0 .. k0 + n_k of all rows, zero from a.k on; rows beyond n_rows are left as they are,
 * since a row of activations reaches no other row's sums. */
template <enum gpu_format F, bool ASYNC>
__device__ __forceinline__ void gemm_load_x(const gemm_args &a, uint32_t k0, uint32_t n_k,
                                            uint8_t *to)
{
    const uint32_t n_chunks = n_k / 8; /* a power of two */
    for (uint32_t i = threadIdx.x; i < a.n_rows * n_chunks; i += GEMM_THREADS) {
        const uint32_t row = i / n_chunks, c = i & (n_chunks - 1), k = k0 + 8 * c;
        const uint16_t *from = a.x + (size_t)row * a.x_stride + k;
        uint8_t *place = to + ((size_t)row * n_chunks + gemm_place<F>(row, c)) * 16;
        if (a.x_is_aligned && (k + 8 <= a.k || k >= a.k)) {
            const bool valid = k < a.k;
            if (ASYNC)
                cp_async_16(place, valid ? from : a.x, valid);
            else
                *reinterpret_cast<uint4 *>(place) =
                    valid ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
            continue;
        }
        uint32_t e[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            e[j] = k + j < a.k ? from[j] : 0u;
        *reinterpret_cast<uint4 *>(place) =
            make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
    }
}

/* Until the oldest of n_ahead steps is there. */
__device__ __forceinline__ void gemm_wait(uint32_t n_ahead)
{
    if (n_ahead == 5)
        cp_async_wait<4>();
    else if (n_ahead == 3)
        cp_async_wait<2>();
    else if (n_ahead == 2)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
}
