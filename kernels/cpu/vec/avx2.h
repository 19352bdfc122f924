#pragma once
/* Implements the operations of kernels/cpu/vec/vec.h with two registers of AVX2, FMA and F16C. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t vb __attribute__((vector_size(16)));
typedef struct {
    __m256 lo, hi; /* lo: lanes 0..7; hi: lanes 8..15 */
} vf;

static inline vf vf_zero(void)
{
    return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline vf vf_set1(float a)
{
    return (vf){_mm256_set1_ps(a), _mm256_set1_ps(a)};
}
static inline vf vf_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
/* Returns the mask of the lanes first .. first + 7 that are below n. */
static inline __m256i vec_mask(uint32_t n, int first)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - first), lane);
}
static inline vf vf_load_n(const float *p, uint32_t n)
{
    return (vf){_mm256_maskload_ps(p, vec_mask(n, 0)), _mm256_maskload_ps(p + 8, vec_mask(n, 8))};
}
static inline void vf_store_n(float *p, vf a, uint32_t n)
{
    _mm256_maskstore_ps(p, vec_mask(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, vec_mask(n, 8), a.hi);
}

static inline vf vf_add(vf a, vf b)
{
    return (vf){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline vf vf_sub(vf a, vf b)
{
    return (vf){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline vf vf_mul(vf a, vf b)
{
    return (vf){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline vf vf_div(vf a, vf b)
{
    return (vf){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline vf vf_min(vf a, vf b)
{
    return (vf){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline vf vf_max(vf a, vf b)
{
    return (vf){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline vf vf_sqrt(vf a)
{
    return (vf){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
static inline vf vf_round(vf a)
{
    return (vf){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline __m256 vec_pow2(__m256 a)
{
    __m256i exp = _mm256_add_epi32(_mm256_cvttps_epi32(a), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exp, 23));
}
static inline vf vf_pow2(vf a)
{
    return (vf){vec_pow2(a.lo), vec_pow2(a.hi)};
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline __m256 vec_from_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return (vf){vec_from_bf16(p), vec_from_bf16(p + 8)};
}
/* Converts to float16, at most +-65504. A NaN stays NaN: it is the second operand. */
static inline __m128i vec_to_f16(__m256 a)
{
    a = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), a));
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
}
static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, vec_to_f16(a.lo));
    _mm_storeu_si128((__m128i *)(p + 8), vec_to_f16(a.hi));
}

static inline vb vb_load(const uint8_t *p)
{
    vb r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline vf vf_from_u8(vb a)
{
    __m128i b = (__m128i)a;
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(b, b)))};
}
static inline vf vf_from_i8(vb a)
{
    __m128i b = (__m128i)a;
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(b, b)))};
}

static inline vb vb_lookup(vb table, vb i)
{
    return (vb)_mm_shuffle_epi8((__m128i)table, (__m128i)i);
}
/* Interprets the bits as a half whose exponent is 8 too small, and multiplies it by 2^8. */
static inline vf vf_from_e4m3(vb a)
{
    __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16((__m128i)a), 7);
    w = _mm256_and_si256(w, _mm256_set1_epi16((short)0xbf80));
    __m256 lo = _mm256_cvtph_ps(_mm256_castsi256_si128(w));
    __m256 hi = _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1));
    const __m256 mend = _mm256_set1_ps(0x1p8f);
    return (vf){_mm256_mul_ps(lo, mend), _mm256_mul_ps(hi, mend)};
}
/* Converts each code c to 2^(c - 127). Code 0 gives 2^-127, which is subnormal. */
static inline __m256 vec_from_e8m0(__m256i a)
{
    __m256i bits = _mm256_max_epi32(_mm256_slli_epi32(a, 23), _mm256_set1_epi32(0x00400000));
    __m256i large = _mm256_cmpgt_epi32(a, _mm256_setzero_si256());
    bits = _mm256_blendv_epi8(bits, _mm256_slli_epi32(a, 23), large);
    return _mm256_castsi256_ps(bits);
}
static inline vf vf_from_e8m0(vb a)
{
    __m128i b = (__m128i)a;
    return (vf){vec_from_e8m0(_mm256_cvtepu8_epi32(b)),
                vec_from_e8m0(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(b, b)))};
}

static inline float vf_sum(vf a)
{
    __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
/* Computes vf_sum for several vectors at once; each step adds the halves of two vectors. */
static inline __m256 vec_sum8(const vf v[8])
{
    __m256 a[4], b[2];
    for (int i = 0; i < 4; i++) {
        const __m256 x = _mm256_add_ps(v[i].lo, v[i].hi),
                     y = _mm256_add_ps(v[i + 4].lo, v[i + 4].hi);
        a[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
    }
    for (int i = 0; i < 2; i++) {
        const __m256d x = _mm256_castps_pd(a[2 * i]), y = _mm256_castps_pd(a[2 * i + 1]);
        b[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                             _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(b[0], b[1], 0x88), _mm256_shuffle_ps(b[0], b[1], 0xdd));
}
static inline vf vf_sum16(const vf v[16])
{
    return (vf){vec_sum8(v), vec_sum8(v + 8)};
}
static inline float vf_hmax(vf a)
{
    __m256 m8 = _mm256_max_ps(a.lo, a.hi);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}
