#pragma once
/* Reads packed weights (layout.h) as operands of mma_bf16_16816, for every kernel that
 * multiplies by them.
 *
 *   codes    4 and 8 bits: lane l of a warp reads 16 bytes at
 *            codes + row_tile * tile_bytes + k_tile * 512 + 16 l: WORDS words for each 16 inputs,
 *            which weights_fragment turns into the a operand: 16 outputs by 16 inputs, in order.
 *            BF16: an output's row is padded_k * 2 bytes; lanes may read any 16 bytes of it.
 *   scales   those of 16 rows for one group lie side by side: scales + row_tile * tile_bytes +
 *            i_group * 16 * SCALE_BYTES; weights_scales reads those of a lane's rows g and g + 8.
 *
 * Operands are exact in bfloat16: the codes themselves, or their values in e4m3 and e2m1. Scales
 * are applied to the sums. For one group: result = scale * sum(a x) + offset * sum(x), where
 * only formats with HAS_OFFSET have an offset. sum(x) in d's own layout is a product with
 * FRAGMENT_ONES. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include "kernels/cuda/device/ptx.cuh"

extern "C" {
#include "kernels/cuda/weights/layout.h"
}

template <enum gpu_format F> struct weights_traits {
    static constexpr bool PLAIN = F == GPU_BF16;
    static constexpr bool NIBBLES = F == GPU_U4 || F == GPU_U4_MIN || F == GPU_MX4;
    static constexpr bool HAS_OFFSET = F == GPU_U4_MIN || F == GPU_I8_MIN;
    static constexpr uint32_t TILE_K = NIBBLES ? 64 : 32; /* number of inputs of a tile of codes */
    static constexpr uint32_t WORDS = NIBBLES ? 1 : 2; /* number of words of a lane for 16 inputs */
    static constexpr uint32_t SCALE_BYTES = PLAIN ? 0 : F == GPU_MX4 ? 1 : F == GPU_I8_MIN ? 8 : 4;
};

/* `weights_scale` holds the scales of rows g and g + 8 in one group. Fields that a format does
 * not have are unused. */
struct weights_scale {
    float scale[2], offset[2];
    uint32_t minus[2]; /* -(128 + zero) in bfloat16, twice in a word */
};

static constexpr uint32_t FRAGMENT_ONES = 0x3f803f80u;

__device__ __forceinline__ uint32_t bf16x2_add(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x = __hadd2(x, y);
    memcpy(&a, &x, 4);
    return a;
}
__device__ __forceinline__ uint32_t bf16x2_mul(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x = __hmul2(x, y);
    memcpy(&a, &x, 4);
    return a;
}
__device__ __forceinline__ uint32_t bf16x2_of(float low, float high)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &v, 4);
    return word;
}
/* Returns (v & mask) | bits in one instruction. Without the assembly it would be two
 * instructions. */
__device__ __forceinline__ uint32_t and_or(uint32_t v, uint32_t mask, uint32_t bits)
{
#ifdef __CUDA_ARCH__
    uint32_t word;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(word) : "r"(v), "r"(mask), "r"(bits));
    return word;
#else
    return (v & mask) | bits;
#endif
}
__device__ __forceinline__ float float_of_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Reads scales. `group` points to the group's scales of 16 rows, in shared or global memory. */
template <enum gpu_format F>
__device__ __forceinline__ struct weights_scale weights_scales(const uint8_t *group, uint32_t g)
{
    struct weights_scale s = {};
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint8_t *p = group + (g + 8 * h) * weights_traits<F>::SCALE_BYTES;
        if (F == GPU_U4 || F == GPU_U4_MIN) {
            const uint32_t both = *reinterpret_cast<const uint32_t *>(p);
            s.scale[h] = float_of_half(both & 0xffffu);
            s.minus[h] = F == GPU_U4 ? __byte_perm(both, 0, 0x3232) : 0xc300c300u;
            s.offset[h] = F == GPU_U4_MIN ? float_of_half(both >> 16) : 0.0f;
        } else if (F == GPU_MX4) { /* a scale of 2^-127 is subnormal */
            s.scale[h] = __uint_as_float(*p == 0 ? 0x00400000u : (uint32_t)*p << 23);
        } else if (F == GPU_I8_MIN) {
            const float2 both = *reinterpret_cast<const float2 *>(p);
            s.scale[h] = both.x, s.offset[h] = both.y;
        } else if (F != GPU_BF16) {
            s.scale[h] = *reinterpret_cast<const float *>(p);
        }
    }
    return s;
}

/* Converts two codes. Codes of 4 bits are at bits 0 and 16, codes of 8 bits in bytes 0 and 2.
 * Other bits may have any value. */
template <enum gpu_format F>
__device__ __forceinline__ uint32_t weights_pair(uint32_t v, uint32_t minus)
{
    if (F == GPU_U4 || F == GPU_U4_MIN) /* puts the code into the last bits of 128 */
        return bf16x2_add(and_or(v, 0x000f000fu, 0x43004300u), minus);
    /* exponent and fraction bit move to bfloat16's place, which makes the value 2^126 times too
     * small */
    if (F == GPU_MX4)
        return bf16x2_mul((v << 12 & 0x80008000u) | (v << 6 & 0x01c001c0u), 0x7e807e80u);
    /* exponent and fraction move to bfloat16's place, which makes the value 2^120 times too small
     */
    if (F == GPU_F8)
        return bf16x2_mul((v << 8 & 0x80008000u) | (v << 4 & 0x07f007f0u), 0x7b807b80u);
    /* Puts seven bits into the last bits of 128, then subtracts 128, or 256 if the sign is set. */
    return bf16x2_add(and_or(v, 0x007f007fu, 0x43004300u), and_or(v, 0x00800080u, 0xc300c300u));
}

/* Makes the a operand of 16 inputs from a lane's WORDS words. */
template <enum gpu_format F>
__device__ __forceinline__ void weights_fragment(uint32_t (&a)[4], const uint32_t *words,
                                                 const struct weights_scale &s)
{
    if (weights_traits<F>::NIBBLES) {
        const uint32_t w = words[0];
        a[0] = weights_pair<F>(w, s.minus[0]);
        a[1] = weights_pair<F>(w >> 4, s.minus[1]);
        a[2] = weights_pair<F>(w >> 8, s.minus[0]);
        a[3] = weights_pair<F>(w >> 12, s.minus[1]);
    } else {
        a[0] = weights_pair<F>(words[0], 0);
        a[1] = weights_pair<F>(words[0] >> 8, 0);
        a[2] = weights_pair<F>(words[1], 0);
        a[3] = weights_pair<F>(words[1] >> 8, 0);
    }
}
