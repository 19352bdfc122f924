#pragma once
/* bfloat16 conversions of CUDA, on the host. */
#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
    uint16_t bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return {0x7fff}; /* the one NaN that devices make */
    return {(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
