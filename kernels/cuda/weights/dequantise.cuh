#pragma once
/* Converts weights to bfloat16 in shared memory: one warp converts a row tile of 16 outputs and
 * SPAN inputs at a time. dequantise.cu and expansion.cu store the result, each in its own order. */
#include "kernels/cuda/weights/formats.cuh"

constexpr uint32_t DEQUANTISE_SPAN = 64; /* number of inputs of a warp */
/* DEQUANTISE_LINE is the number of words of a row in shared memory. It is 4 more than necessary,
 * so that 8 neighbouring rows are in different banks, and so are 32 neighbouring inputs of a
 * row. */
constexpr uint32_t DEQUANTISE_LINE = DEQUANTISE_SPAN / 2 + 4;
using dequantise_lines = uint32_t[GPU_TILE_N][DEQUANTISE_LINE];

__device__ __forceinline__ float low_of(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_of(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Converts inputs k0 .. k0 + SPAN - 1 of a row tile of codes, as far as they are below k. A
 * __syncwarp must follow. */
template <enum gpu_format F>
__device__ __forceinline__ void dequantise_span(dequantise_lines &lines, const uint8_t *codes,
                                                const uint8_t *scales, uint32_t k0, uint32_t k_end,
                                                uint32_t group)
{
    using W = weights_traits<F>;
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < DEQUANTISE_SPAN / W::TILE_K; i++) {
        const uint32_t k = k0 + i * W::TILE_K;
        if (k >= k_end)
            break;
        const uint4 v = load_stream_16(codes + (size_t)(k / W::TILE_K) * 512 + 16 * lane);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t j = 0; j < W::TILE_K / 16; j++) {
            const uint32_t at = k + 16 * j;
            if (at >= k_end)
                break;
            const uint8_t *own = scales + (size_t)(at / group) * GPU_TILE_N * W::SCALE_BYTES;
            const weights_scale s = weights_scales<F>(own, g);
            uint32_t pairs[4];
            weights_fragment<F>(pairs, words + j * W::WORDS, s);
#pragma unroll
            for (uint32_t p = 0; p < 4; p++) {
                const uint32_t h = p % 2;
                const float low = fmaf(s.scale[h], low_of(pairs[p]), s.offset[h]);
                const float high = fmaf(s.scale[h], high_of(pairs[p]), s.offset[h]);
                lines[g + 8 * h][(at - k0) / 2 + t + p / 2 * 4] = bf16x2_of(low, high);
            }
        }
    }
}

/* Copies inputs of BF16 in the same way. Rows of BF16 are filled up to pieces of 16 bytes
 * (gpu_padded_k). */
template <>
__device__ __forceinline__ void dequantise_span<GPU_BF16>(dequantise_lines &lines,
                                                          const uint8_t *codes, const uint8_t *,
                                                          uint32_t k0, uint32_t k_end, uint32_t)
{
    const uint32_t lane = threadIdx.x % 32, row_bytes = (k_end + 7) / 8 * 16;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) { /* eight lanes read a row */
        const uint32_t row = 4 * i + lane / 8, c = lane % 8;
        if (k0 + 8 * c < k_end)
            *reinterpret_cast<uint4 *>(&lines[row][4 * c]) =
                load_stream_16(codes + (size_t)row * row_bytes + (k0 + 8 * c) * 2);
    }
}
