#pragma once
/* Implements the operations of kernels/cpu/vec/vec.h with one register of AVX-512 (F, BW, VL,
 * DQ). */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t vb __attribute__((vector_size(16)));
typedef __m512 vf;

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void vf_store_n(float *p, vf a, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
static inline vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_pow2(vf a)
{
    __m512i exp = _mm512_add_epi32(_mm512_cvttps_epi32(a), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exp, 23));
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
/* Stores as float16, limited to -65504 .. 65504. minps and maxps return their second operand
 * when one is NaN, so a NaN stays NaN. */
static inline void vf_store_f16(uint16_t *p, vf a)
{
    a = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_min_ps(_mm512_set1_ps(65504.0f), a));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vb vb_load(const uint8_t *p)
{
    vb r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline vf vf_from_u8(vb a)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32((__m128i)a));
}
static inline vf vf_from_i8(vb a)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)a));
}

static inline vb vb_lookup(vb table, vb i)
{
    return (vb)_mm_shuffle_epi8((__m128i)table, (__m128i)i);
}
/* Interprets the bits as a float whose exponent is 120 too small, and multiplies it by 2^120.
 * The result is right for subnormal numbers too. */
static inline vf vf_from_e4m3(vb a)
{
    __m512i b = _mm512_cvtepu8_epi32((__m128i)a);
    __m512i sign = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x80)), 24);
    __m512i rest = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x7f)), 20);
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(sign, rest)),
                         _mm512_set1_ps(0x1p120f));
}
/* Converts each code c to 2^(c - 127). Code 0 gives 2^-127, which is subnormal. */
static inline vf vf_from_e8m0(vb a)
{
    __m512i b = _mm512_cvtepu8_epi32((__m128i)a);
    __mmask16 zero = _mm512_testn_epi32_mask(b, b);
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_slli_epi32(b, 23), zero, 0x00400000));
}

static inline float vf_sum(vf a)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
/* Computes vf_sum for 16 vectors at once: each of four steps adds the halves of two vectors. */
static inline vf vf_sum16(const vf v[16])
{
    vf a[8], b[4], c[2];
    for (int i = 0; i < 8; i++) {
        const vf x = v[i % 4 + i / 4 * 8], y = v[i % 4 + i / 4 * 8 + 4];
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    }
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                             _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd));
    for (int i = 0; i < 2; i++) {
        const __m512d x = _mm512_castps_pd(b[2 * i]), y = _mm512_castps_pd(b[2 * i + 1]);
        c[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    return _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
}
static inline float vf_hmax(vf a)
{
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}
