#pragma once
/* Implements VDOT_ROWS for kernels/cpu/dot/dot_impl.h: the sums of a few rows side by side, over
 * codes in memory. This header is included after vdot_avx2.h.
 *
 * For each row, 32 inputs by 16 outputs cost 41 operations without loads, for codes of 4 bits:
 * 16 products, 14 sums, 2 to widen, 3 for the offset, 6 for the scales. The cost is 43 for 5
 * bits, 52 for Q6_K and 75 for 8 bits. With VNNI the cost is 23, and 28 for Q6_K. Fused
 * multiply-adds would take 64. */
#include "kernels/cpu/formats/formats_impl.h"

#define VDOT_ROWS
/* Returns w. The barrier makes the compiler store the unpacked codes, so that no code occupies a
 * register. */
KERNEL_INLINE const vq *vdot_in_memory(const vq *w)
{
    __asm__ volatile("" : "+r"(w) : : "memory");
    return w;
}
/* Returns neg * offset of one row in every lane. */
KERNEL_INLINE vi vdot_neg(int32_t neg, int32_t offset)
{
    const __m256i v = _mm256_mullo_epi32(_mm256_set1_epi32(neg), _mm256_set1_epi32(offset));
    return (vi){v, v};
}

#ifdef __AVXVNNI__
/* Returns the number of rows whose sums fit into the registers. */
KERNEL_INLINE uint32_t vdot_n_rows(uint32_t bits)
{
    return 4;
}
/* Converts the codes of vq_* to the form that vi_dot_rows needs. */
KERNEL_INLINE void vdot_unpack(uint32_t bits, vq w[16])
{
}
/* vi_begin() starts a row's sum, vi_dot_rows() adds n vectors of codes for n_rows rows, and
 * vi_end() completes a row's sum. */
KERNEL_INLINE vi vi_begin(int32_t neg, int32_t offset)
{
    return vdot_neg(neg, offset);
}
KERNEL_INLINE void vi_dot_rows(uint32_t bits, uint32_t n, uint32_t n_rows, const vq *w,
                               const int8_t *x, uint32_t x_stride, vi *r)
{
    KERNEL_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        KERNEL_UNROLL
        for (uint32_t j = 0; j < n_rows; j++) {
            const __m256i b = vdot_four(x + j * x_stride + 4 * i);
            r[j].lo = _mm256_dpbusd_avx_epi32(r[j].lo, w[i].lo, b);
            r[j].hi = _mm256_dpbusd_avx_epi32(r[j].hi, w[i].hi, b);
        }
    }
}
KERNEL_INLINE vi vi_end(vi r, int32_t neg, int32_t offset)
{
    return r;
}
#else
KERNEL_INLINE uint32_t vdot_n_rows(uint32_t bits)
{
    return bits == 8 ? 2 : 4;
}
/* Splits codes of eight bits into two halves of four bits, all low halves first. Products of
 * halves can be added like those of other codes. Products of whole codes would have to be
 * widened one by one. */
KERNEL_INLINE void vdot_unpack(uint32_t bits, vq w[16])
{
    KERNEL_UNROLL
    for (uint32_t i = 0; i < 8 && bits == 8; i++) {
        w[i + 8] = vq_high(w[i]);
        w[i] = vq_and(w[i], 15);
    }
}
KERNEL_INLINE vi vi_begin(int32_t neg, int32_t offset)
{
    return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
/* Returns sum plus the products of pairs. The assembly keeps the order of the sums: gcc would
 * add in trees, which need more registers. With clang the assembly is left out, because it would
 * keep the sums in memory. */
KERNEL_INLINE vq vdot_add_pairs(vq sum, vq w, __m256i x, bool first)
{
    const vq s = {_mm256_maddubs_epi16(w.lo, x), _mm256_maddubs_epi16(w.hi, x)};
    if (first)
        return s;
    sum.lo = _mm256_add_epi16(sum.lo, s.lo);
    sum.hi = _mm256_add_epi16(sum.hi, s.hi);
#ifndef __clang__
    __asm__("" : "+x"(sum.lo), "+x"(sum.hi));
#endif
    return sum;
}
KERNEL_INLINE vi vdot_widen(vi r, vq sum, int16_t factor)
{
    const __m256i f = _mm256_set1_epi16(factor);
    return (vi){_mm256_add_epi32(r.lo, _mm256_madd_epi16(sum.lo, f)),
                _mm256_add_epi32(r.hi, _mm256_madd_epi16(sum.hi, f))};
}
KERNEL_INLINE void vi_dot_rows(uint32_t bits, uint32_t n, uint32_t n_rows, const vq *w,
                               const int8_t *x, uint32_t x_stride, vi *r)
{
    const uint32_t per_sum = bits == 5 ? 4 : bits == 6 ? 2 : 8, n_halves = bits == 8 ? 2 : 1;
    vq sum[2][4];
    KERNEL_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        KERNEL_UNROLL
        for (uint32_t j = 0; j < n_rows; j++) {
            const __m256i b = vdot_four(x + j * x_stride + 4 * i);
            KERNEL_UNROLL
            for (uint32_t h = 0; h < n_halves; h++) {
                sum[h][j] = vdot_add_pairs(sum[h][j], w[i + 8 * h], b, i % per_sum == 0);
                if (i % per_sum == per_sum - 1)
                    r[j] = vdot_widen(r[j], sum[h][j], h ? 16 : 1);
            }
        }
    }
}
KERNEL_INLINE vi vi_end(vi r, int32_t neg, int32_t offset)
{
    const vi n = vdot_neg(neg, offset);
    return (vi){_mm256_add_epi32(r.lo, n.lo), _mm256_add_epi32(r.hi, n.hi)};
}
#endif
