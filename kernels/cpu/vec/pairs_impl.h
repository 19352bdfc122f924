#pragma once
/* Implements vf_load_pairs(const uint16_t *p, vf w[2]), which loads 16 words of two bfloat16
 * each: the high halves into w[0], the low halves into w[1]. The function uses the vf of the
 * vec/ISA.h that was included before. */
#include <stdint.h>
#include <string.h>

#if defined __AVX512F__
static inline void vf_load_pairs(const uint16_t *p, vf w[2])
{
    __m512i both = _mm512_loadu_si512(p);
    w[0] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000u)));
    w[1] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
}
#elif defined __AVX2__
static inline void vf_load_pairs(const uint16_t *p, vf w[2])
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    __m256i lo = _mm256_loadu_si256((const __m256i *)p);
    __m256i hi = _mm256_loadu_si256((const __m256i *)(p + 16));
    w[0] = (vf){_mm256_castsi256_ps(_mm256_and_si256(lo, high)),
                _mm256_castsi256_ps(_mm256_and_si256(hi, high))};
    w[1] = (vf){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
#elif defined VEC_NEON
static inline float32x4_t vec_high(uint16x8_t x)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(x), vdupq_n_u32(0xffff0000u)));
}
static inline float32x4_t vec_low(uint16x8_t x)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(x), 16));
}
static inline void vf_load_pairs(const uint16_t *p, vf w[2])
{
    const uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8), c = vld1q_u16(p + 16),
                     d = vld1q_u16(p + 24);
    w[0] = (vf){vec_high(a), vec_high(b), vec_high(c), vec_high(d)};
    w[1] = (vf){vec_low(a), vec_low(b), vec_low(c), vec_low(d)};
}
#else
static inline void vf_load_pairs(const uint16_t *p, vf w[2])
{
    uint32_t both[16], low[16];
    memcpy(both, p, sizeof both);
    for (int i = 0; i < 16; i++) {
        low[i] = both[i] << 16;
        both[i] &= 0xffff0000u;
    }
    memcpy(&w[0], both, sizeof both);
    memcpy(&w[1], low, sizeof low);
}
#endif
