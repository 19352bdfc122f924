#pragma once
/* Implements half precision (IEEE 754 binary16) by integer arithmetic, with the bits that F16C
 * gives: NaNs become quiet and keep their payload. Conversion to half rounds to nearest even.
 * Numbers beyond the range and infinities become the largest finite number, as in vf_store_f16. */
#include <stdint.h>
#include <string.h>

static inline float f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31u, frac = h & 0x3ffu, bits;
    if (exp == 0) { /* h is zero or subnormal: its value is exactly frac * 2^-24 */
        float f = (float)frac * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
    } else if (exp == 31) {
        bits = 0x7f800000u | frac << 13 | (frac ? 0x400000u : 0u);
    } else {
        bits = (exp + 112) << 23 | frac << 13;
    }
    bits |= sign;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint16_t f16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, abs = bits & 0x7fffffffu;
    if (abs > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (abs >> 13 & 0x3ffu));
    if (abs >= 0x477fe000u) /* numbers from 65504 on, which is the largest finite half */
        return (uint16_t)(sign | 0x7bffu);
    /* numbers below 2^-14: the last place of the sum is 2^-24, as in a subnormal half */
    if (abs < 0x38800000u) {
        float a;
        memcpy(&a, &abs, sizeof a);
        a += 0.5f;
        memcpy(&abs, &a, sizeof abs);
        return (uint16_t)(sign | (abs - 0x3f000000u));
    }
    abs += 0xfffu + (abs >> 13 & 1u); /* this rounds to nearest even at bit 13 */
    return (uint16_t)(sign | ((abs >> 13) - (112u << 10)));
}
