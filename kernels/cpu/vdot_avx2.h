#pragma once
/* kernels/cpu/vdot_scalar.h as two registers of AVX2, behind vec_avx2.h; with AVX-VNNI where the
 * file is compiled for it. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/formats_impl.h"

typedef struct {
    __m256i lo, hi; /* outputs 0..7, 8..15 */
} vq;
typedef vq vi;

static inline vq vq_load(const uint8_t *p)
{
    return (vq){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1)};
}
static inline vq vq_and(vq a, uint8_t mask)
{
    const __m256i m = _mm256_set1_epi8((char)mask);
    return (vq){_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
static inline vq vq_high(vq a)
{
    return vq_and((vq){_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)}, 15);
}
static inline __attribute__((always_inline)) vq vq_or_bits(vq a, vq b, uint32_t from, uint8_t mask)
{
    vq moved = {
        from < 4 ? _mm256_slli_epi16(b.lo, 4 - (int)from) : _mm256_srli_epi16(b.lo, (int)from - 4),
        from < 4 ? _mm256_slli_epi16(b.hi, 4 - (int)from) : _mm256_srli_epi16(b.hi, (int)from - 4)};
    moved = vq_and(moved, mask);
    return (vq){_mm256_or_si256(a.lo, moved.lo), _mm256_or_si256(a.hi, moved.hi)};
}
static inline __m256i vdot_four(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

#ifdef __AVXVNNI__
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    vi r = {_mm256_set1_epi32(neg), _mm256_set1_epi32(neg)};
    for (uint32_t i = 0; i < n; i++) {
        const __m256i b = vdot_four(x + 4 * i);
        r.lo = _mm256_dpbusd_avx_epi32(r.lo, w[i].lo, b);
        r.hi = _mm256_dpbusd_avx_epi32(r.hi, w[i].hi, b);
    }
    return r;
}
#else
static inline __attribute__((always_inline)) __m256i vdot_pairs(uint32_t bits, __m256i a, __m256i b)
{
    if (bits == 8) {
        a = _mm256_xor_si256(a, _mm256_set1_epi8((char)0x80));
        b = _mm256_sign_epi8(b, a);
        a = _mm256_abs_epi8(a);
    }
    return _mm256_maddubs_epi16(a, b);
}
/* Products of bytes are added in pairs, and as many pairs as 16 bits hold: of codes of 4 bits
 * 8 * 2 * 15 * 127. What has 8 bits goes by sizes of weights and signed inputs. */
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    const __m256i ones = _mm256_set1_epi16(1), begin = _mm256_set1_epi32(bits == 8 ? 0 : neg);
    const uint32_t per_sum = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    vi r = {begin, begin};
    for (uint32_t i = 0; i < n; i += per_sum) {
        vq sum;
        for (uint32_t j = i; j < i + per_sum && j < n; j++) {
            const __m256i b = vdot_four(x + 4 * j);
            const vq s = {vdot_pairs(bits, w[j].lo, b), vdot_pairs(bits, w[j].hi, b)};
            sum = j == i ? s : (vq){_mm256_add_epi16(sum.lo, s.lo), _mm256_add_epi16(sum.hi, s.hi)};
        }
        r.lo = _mm256_add_epi32(r.lo, _mm256_madd_epi16(sum.lo, ones));
        r.hi = _mm256_add_epi32(r.hi, _mm256_madd_epi16(sum.hi, ones));
    }
    return r;
}
#endif

/* ---- tiles of rows ----
 *
 * What kernels/cpu/dot_impl.h wants for VDOT_ROWS. A group of 32 inputs of a row in 4 bits costs 40
 * operations beside its loads, 16 of them products, and with VNNI 23, 16 of them products. */
#define VDOT_ROWS
/* Codes that were unpacked, none of which may stay in a register. */
KERNEL_INLINE const vq *vdot_in_memory(const vq *w)
{
    __asm__ volatile("" : "+r"(w) : : "memory");
    return w;
}
/* Of one row, times its codes' offset. */
KERNEL_INLINE vi vdot_neg(int32_t neg, int32_t offset)
{
    const __m256i v = _mm256_mullo_epi32(_mm256_set1_epi32(neg), _mm256_set1_epi32(offset));
    return (vi){v, v};
}

#ifdef __AVXVNNI__
/* Rows whose sums have room. */
KERNEL_INLINE uint32_t vdot_n_rows(uint32_t bits)
{
    return 4;
}
/* Codes of vq_* as vi_dot_rows wants them. */
KERNEL_INLINE void vdot_unpack(uint32_t bits, vq w[16])
{
}
/* A row's sum is begun, those of n_rows go on with n vectors of codes, and one is ended. */
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
/* Eight bits become two halves of four, low ones first: products of halves are added as those of
 * other codes are, where those of whole codes have to be widened one by one. */
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
/* sum with products of pairs. In this order: gcc would rather add in trees, which want more
 * registers; what stops it makes clang keep sums in memory. */
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

static inline vf vi_to_f(vi a)
{
    return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

static inline float vdot_largest(const float *x)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8)
        m = _mm256_max_epu32(m,
                             _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + i)), size));
    __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(h));
}
static inline void vdot_round(const float *x, float factor, int8_t *to, int32_t half[2])
{
    const __m256 f = _mm256_set1_ps(factor);
    for (int i = 0; i < 2; i++) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i), f));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i + 8), f));
        __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        __m128i high = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
        _mm_storeu_si128((__m128i *)(to + 16 * i), _mm_packs_epi16(low, high));
        __m256i sum = _mm256_add_epi32(a, b);
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
        half[i] = _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
    }
}
