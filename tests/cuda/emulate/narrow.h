#pragma once
/* Implements rounding to the narrow formats, to nearest even. Sums and products of two narrow
 * values are exact enough in float to be rounded twice. A fused operation is first rounded to
 * odd as a float. */
#include <math.h>
#include <stdint.h>

#include "device_bits.h"

namespace emulate
{
/* Rounds as cvt.rn.bf16.f32 does: every NaN becomes 0x7fff. */
inline uint16_t bf16_bits(float v)
{
    const uint32_t bits = bits_as<uint32_t>(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float bf16_value(uint16_t bits)
{
    return bits_as<float>((uint32_t)bits << 16);
}

inline uint16_t half_bits(float v)
{
    uint32_t bits = bits_as<uint32_t>(v);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return 0x7fff;
    /* numbers from 65520, which is midway between the largest half and the next step */
    if (bits >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00);
    /* the half is subnormal: adding 1/2 puts its last bit at a float's last place */
    if (bits < 0x38800000u)
        return (uint16_t)(sign | (bits_as<uint32_t>(bits_as<float>(bits) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((bits + 0xfffu + (bits >> 13 & 1) - (112u << 23)) >> 13));
}

inline float half_value(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = (uint32_t)(bits & 0x7fff) << 13;
    if (rest >= 0x7c00u << 13)
        return bits_as<float>(sign | 0x7f800000u | (rest & 0x7fffffu));
    return bits_as<float>(sign | bits_as<uint32_t>(bits_as<float>(rest) * 0x1p112f));
}

/* Returns a b + c rounded to odd. Rounding this result to a format of at most 22 bits equals
 * rounding the exact number. */
inline float fma_to_odd(float a, float b, float c)
{
    const double p = (double)a * (double)b, s = p + (double)c; /* p is exact */
    if (!(fabs(s) <= 0x1.fffffffffffffp1023))
        return (float)s;
    const double c_part = s - p, error = (p - (s - c_part)) + ((double)c - c_part);
    double odd = s;
    if (error != 0) {
        uint64_t bits = bits_as<uint64_t>(s);
        bits -= (error < 0) == (s > 0); /* s is beyond the exact sum */
        odd = bits_as<double>(bits | 1);
    }
    const float f = (float)odd;
    if ((double)f == odd)
        return f;
    uint32_t bits = bits_as<uint32_t>(f);
    bits -= fabs((double)f) > fabs(odd);
    return bits_as<float>(bits | 1);
}

/* Converts to e4m3 without infinities; a number that is too large becomes 448. */
inline uint8_t e4m3_bits(float v)
{
    const uint8_t sign = bits_as<uint32_t>(v) >> 31 ? 0x80 : 0;
    const float size = fabsf(v);
    if (isnan(v))
        return 0x7f;
    if (size >= 448.0f)
        return sign | 0x7e;
    if (size < 0x1p-6f) /* the code is subnormal, in units of 2^-9 */
        return (uint8_t)(sign | (unsigned)rintf(size * 0x1p9f));
    const uint32_t bits = bits_as<uint32_t>(size);
    return (uint8_t)(sign | ((bits + 0x7ffffu + (bits >> 20 & 1) - (120u << 23)) >> 20));
}

inline float e4m3_value(uint8_t bits)
{
    if ((bits & 0x7f) == 0x7f)
        return NAN;
    const float size = bits_as<float>((uint32_t)(bits & 0x7f) << 20) * 0x1p120f;
    return bits & 0x80 ? -size : size;
}
} // namespace emulate

/* Defines the arithmetic of a 16-bit format `one`, and of pairs `two` of that format, from
 * expressions over single letters. */
#define EMULATE_NARROW_2(name, one, two, expression)                                               \
    inline one name(one a, one b)                                                                  \
    {                                                                                              \
        const float x = (float)a, y = (float)b;                                                    \
        return one(expression);                                                                    \
    }                                                                                              \
    inline two name##2(two a, two b)                                                               \
    {                                                                                              \
        return two(name(a.x, b.x), name(a.y, b.y));                                                \
    }
#define EMULATE_NARROW_ARITHMETIC(one, two)                                                        \
    EMULATE_NARROW_2(__hadd, one, two, x + y)                                                      \
    EMULATE_NARROW_2(__hsub, one, two, x - y)                                                      \
    EMULATE_NARROW_2(__hmul, one, two, x *y)                                                       \
    EMULATE_NARROW_2(__hdiv, one, two, x / y)                                                      \
    EMULATE_NARROW_2(__hmax, one, two, fmaxf(x, y))                                                \
    EMULATE_NARROW_2(__hmin, one, two, fminf(x, y))                                                \
    inline two __h2div(two a, two b)                                                               \
    {                                                                                              \
        return __hdiv2(a, b);                                                                      \
    }                                                                                              \
    inline one __hadd_rn(one a, one b)                                                             \
    {                                                                                              \
        return __hadd(a, b);                                                                       \
    }                                                                                              \
    inline one __hsub_rn(one a, one b)                                                             \
    {                                                                                              \
        return __hsub(a, b);                                                                       \
    }                                                                                              \
    inline one __hmul_rn(one a, one b)                                                             \
    {                                                                                              \
        return __hmul(a, b);                                                                       \
    }                                                                                              \
    inline two __hadd2_rn(two a, two b)                                                            \
    {                                                                                              \
        return __hadd2(a, b);                                                                      \
    }                                                                                              \
    inline two __hsub2_rn(two a, two b)                                                            \
    {                                                                                              \
        return __hsub2(a, b);                                                                      \
    }                                                                                              \
    inline two __hmul2_rn(two a, two b)                                                            \
    {                                                                                              \
        return __hmul2(a, b);                                                                      \
    }                                                                                              \
    inline one __hfma(one a, one b, one c)                                                         \
    {                                                                                              \
        return one(emulate::fma_to_odd((float)a, (float)b, (float)c));                             \
    }                                                                                              \
    inline two __hfma2(two a, two b, two c)                                                        \
    {                                                                                              \
        return two(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                  \
    }                                                                                              \
    inline two __hneg2(two a)                                                                      \
    {                                                                                              \
        return two(__hneg(a.x), __hneg(a.y));                                                      \
    }                                                                                              \
    inline two __habs2(two a)                                                                      \
    {                                                                                              \
        return two(__habs(a.x), __habs(a.y));                                                      \
    }                                                                                              \
    inline float __low2float(two a)                                                                \
    {                                                                                              \
        return (float)a.x;                                                                         \
    }                                                                                              \
    inline float __high2float(two a)                                                               \
    {                                                                                              \
        return (float)a.y;                                                                         \
    }
