#pragma once
/* Converts to numbers of fewer bits, by integer arithmetic without branches: compilers vectorize
 * loops over these functions, with equal bits at every level. All functions round to nearest
 * even. */
#include <stdint.h>
#include <string.h>

static inline uint32_t narrow_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static inline float narrow_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Converts to bfloat16. A NaN keeps its sign and becomes quiet; infinities stay infinite. */
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t bits = narrow_bits(f), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded >> 16);
}

/* Converts to OCP FP8; |f| <= 448. Below 2^-6 the codes are multiples of 2^-9, the last place of
 * 2^14. */
static inline uint8_t e4m3_from_f32(float f)
{
    uint32_t bits = narrow_bits(f), abs = bits & 0x7fffffffu;
    uint32_t normal = ((abs + 0x7ffffu + (abs >> 20 & 1u)) >> 20) - (120u << 3);
    uint32_t small = narrow_bits(narrow_float(abs) + 0x1p14f) - narrow_bits(0x1p14f);
    return (uint8_t)((bits >> 24 & 0x80u) | (abs < 0x3c800000u ? small : normal));
}

/* Converts to a signed byte; |f| <= 127. The last place of f + 1.5 * 2^23 is one, so the low
 * bits of this sum are the rounded number. */
static inline uint8_t i8_from_f32(float f)
{
    return (uint8_t)narrow_bits(f + 0x1.8p23f);
}
