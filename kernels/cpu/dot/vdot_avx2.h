#pragma once
/* Implements the operations of kernels/cpu/dot/vdot_scalar.h with two registers of AVX2. This
 * header is included after vec/avx2.h. The operations use AVX-VNNI if the file is compiled for
 * it. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256i lo, hi; /* lo: outputs 0..7; hi: outputs 8..15 */
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
/* Products of bytes are added in pairs, and then as many pairs as fit into 16 bits: 8 * 2 * 15 *
 * 127 for codes of 4 bits. With codes of 8 bits, the magnitudes of the weights are multiplied by
 * inputs that get the weights' signs. */
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
