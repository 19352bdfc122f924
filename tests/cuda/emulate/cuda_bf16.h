#pragma once
/* Implements CUDA's bfloat16 on the host. */
#include "narrow.h"
#include "types.h"

struct alignas(2) __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float v) : bits(emulate::bf16_bits(v))
    {
    }
    operator float() const
    {
        return emulate::bf16_value(bits);
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x_, __nv_bfloat16 y_) : x(x_), y(y_)
    {
    }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits)
{
    __nv_bfloat16 v;
    v.bits = bits;
    return v;
}
inline __nv_bfloat16 __float2bfloat16(float v)
{
    return v;
}
inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return v;
}
inline float __bfloat162float(__nv_bfloat16 v)
{
    return v;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {x, y};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return {v.x, v.y};
}
inline __nv_bfloat162 __float2bfloat162_rn(float v)
{
    return {v, v};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {v.x, v.y};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v)
{
    return {v, v};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}
inline __nv_bfloat16 __int2bfloat16_rn(int v)
{
    return __nv_bfloat16((float)v); /* the float is exact up to 2^24, which is enough here */
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 v)
{
    return __ushort_as_bfloat16(v.bits ^ 0x8000);
}
inline __nv_bfloat16 __habs(__nv_bfloat16 v)
{
    return __ushort_as_bfloat16(v.bits & 0x7fff);
}
EMULATE_NARROW_ARITHMETIC(__nv_bfloat16, __nv_bfloat162)
