#pragma once
/* Implements the operations of kernels/cpu/dot/vdot_scalar.h with one register of AVX-512. This
 * header is included after vec/avx512.h. The operations use VNNI if the file is compiled for it. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m512i vq;
typedef __m512i vi;

static inline vq vq_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}
static inline vq vq_and(vq a, uint8_t mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
}
static inline vq vq_high(vq a)
{
    return vq_and(_mm512_srli_epi16(a, 4), 15);
}
static inline __attribute__((always_inline)) vq vq_or_bits(vq a, vq b, uint32_t from, uint8_t mask)
{
    vq moved = from < 4 ? _mm512_slli_epi16(b, 4 - from) : _mm512_srli_epi16(b, from - 4);
    return _mm512_ternarylogic_epi64(a, moved, _mm512_set1_epi8((char)mask),
                                     0xf8); /* 0xf8 selects a | (b & c) */
}
static inline __m512i vdot_four(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

#ifdef __AVX512VNNI__
/* Returns r plus w times the same four codes in each output. The assembly is one instruction
 * with a broadcast memory operand. gcc 12 would generate two instructions, which makes the
 * product a fifth slower. */
static inline __attribute__((always_inline)) vi vdot_add(vi r, vq w, const int8_t *x)
{
#ifdef __clang__
    return _mm512_dpbusd_epi32(r, w, vdot_four(x));
#else
    typedef int32_t four_codes __attribute__((may_alias, aligned(1)));
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(r) : "m"(*(const four_codes *)x), "v"(w));
    return r;
#endif
}
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    vi r = _mm512_set1_epi32(neg);
    for (uint32_t i = 0; i < n; i++)
        r = vdot_add(r, w[i], x + (size_t)4 * i);
    return r;
}
#else
/* Products of bytes are added in pairs, and then as many pairs as fit into 16 bits: 8 * 2 * 15 *
 * 127 for codes of 4 bits. With codes of 8 bits, the magnitudes of the weights are multiplied by
 * inputs that get the weights' signs. */
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    const __m512i ones = _mm512_set1_epi16(1);
    const uint32_t per_sum = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    vi r = bits == 8 ? _mm512_setzero_si512() : _mm512_set1_epi32(neg);
    for (uint32_t i = 0; i < n; i += per_sum) {
        __m512i sum = _mm512_setzero_si512();
        for (uint32_t j = i; j < i + per_sum && j < n; j++) {
            __m512i a = w[j], b = vdot_four(x + 4 * j);
            if (bits == 8) {
                a = _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80));
                b = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b);
                a = _mm512_abs_epi8(a);
            }
            a = _mm512_maddubs_epi16(a, b);
            sum = j == i ? a : _mm512_add_epi16(sum, a);
        }
        r = _mm512_add_epi32(r, _mm512_madd_epi16(sum, ones));
    }
    return r;
}
#endif

static inline vf vi_to_f(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline float vdot_largest(const float *x)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i a = _mm512_and_si512(_mm512_loadu_si512(x), size);
    __m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), size);
    uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline void vdot_round(const float *x, float factor, int8_t *to, int32_t half[2])
{
    const __m512 f = _mm512_set1_ps(factor);
    for (int i = 0; i < 2; i++) {
        __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), f));
        _mm_storeu_si128((__m128i *)(to + 16 * i), _mm512_cvtepi32_epi8(q));
        half[i] = _mm512_reduce_add_epi32(q);
    }
}
