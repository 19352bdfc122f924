#pragma once
/* Implements CUDA's float16 on the host. */
#include "narrow.h"
#include "types.h"

struct __half_raw {
    unsigned short x;
};
struct alignas(4) __half2_raw {
    unsigned short x, y;
};

struct alignas(2) __half {
    uint16_t bits;
    __half() = default;
    __half(float v) : bits(emulate::half_bits(v))
    {
    }
    __half(__half_raw raw) : bits(raw.x)
    {
    }
    operator float() const
    {
        return emulate::half_value(bits);
    }
    operator __half_raw() const
    {
        return {bits};
    }
};

struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_)
    {
    }
    __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y})
    {
    }
};
typedef __half half;
typedef __half2 half2;

inline uint16_t __half_as_ushort(__half v)
{
    return v.bits;
}
inline __half __ushort_as_half(uint16_t bits)
{
    return __half(__half_raw{bits});
}
inline __half __float2half(float v)
{
    return __half(v);
}
inline __half __float2half_rn(float v)
{
    return __half(v);
}
inline float __half2float(__half v)
{
    return (float)v;
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 v)
{
    return {__half(v.x), __half(v.y)};
}
inline __half2 __float2half2_rn(float v)
{
    return {__half(v), __half(v)};
}
inline float2 __half22float2(__half2 v)
{
    return {(float)v.x, (float)v.y};
}
inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}
inline __half2 __half2half2(__half v)
{
    return {v, v};
}
inline __half __low2half(__half2 v)
{
    return v.x;
}
inline __half __high2half(__half2 v)
{
    return v.y;
}
inline __half2 __low2half2(__half2 v)
{
    return {v.x, v.x};
}
inline __half2 __high2half2(__half2 v)
{
    return {v.y, v.y};
}
inline __half __int2half_rn(int v)
{
    /* the float is exact up to 2^24, and a half beyond 65520 is infinite anyway */
    return __half((float)v);
}
inline __half __hneg(__half v)
{
    return __ushort_as_half(v.bits ^ 0x8000);
}
inline __half __habs(__half v)
{
    return __ushort_as_half(v.bits & 0x7fff);
}
EMULATE_NARROW_ARITHMETIC(__half, __half2)
