#pragma once
/* Implements arithmetic that CUDA has and C lacks. Functions that a device only approximates
 * (__expf, rsqrtf, ...) are more exact here. */
#include <math.h>
#include <stdint.h>

inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __frsqrt_rn(float a)
{
    return (float)(1.0 / sqrt((double)a));
}
inline float rsqrtf(float a)
{
    return (float)(1.0 / sqrt((double)a));
}
inline double rsqrt(double a)
{
    return 1.0 / sqrt(a);
}
inline float __expf(float a)
{
    return expf(a);
}
inline float __exp10f(float a)
{
    return powf(10.0f, a);
}
inline float __logf(float a)
{
    return logf(a);
}
inline float __log2f(float a)
{
    return log2f(a);
}
inline float __powf(float a, float b)
{
    return powf(a, b);
}
inline float __sinf(float a)
{
    return sinf(a);
}
inline float __cosf(float a)
{
    return cosf(a);
}
inline float __saturatef(float a)
{
    return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; /* a NaN gives 0 here */
}

/* Numbers out of range saturate and a NaN gives 0, as on a device. */
inline int __float2int_rn(float v)
{
    return isnan(v) ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int)rintf(v);
}
inline int __float2int_rz(float v)
{
    return isnan(v) ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int)v;
}
inline int __float2int_rd(float v)
{
    return __float2int_rz(floorf(v));
}
inline uint32_t __float2uint_rn(float v)
{
    return !(v > 0.0f) ? 0 : v >= 0x1p32f ? UINT32_MAX : (uint32_t)rintf(v);
}
inline uint32_t __float2uint_rz(float v)
{
    return !(v > 0.0f) ? 0 : v >= 0x1p32f ? UINT32_MAX : (uint32_t)v;
}
inline float __int2float_rn(int v)
{
    return (float)v;
}
inline float __uint2float_rn(uint32_t v)
{
    return (float)v;
}
inline float __double2float_rn(double v)
{
    return (float)v;
}

#define EMULATE_MIN_MAX(type)                                                                      \
    inline type min(type a, type b)                                                                \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    inline type max(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
EMULATE_MIN_MAX(int)
EMULATE_MIN_MAX(unsigned)
EMULATE_MIN_MAX(long)
EMULATE_MIN_MAX(unsigned long)
EMULATE_MIN_MAX(long long)
EMULATE_MIN_MAX(unsigned long long)
#undef EMULATE_MIN_MAX
inline unsigned min(unsigned a, int b)
{
    return min(a, (unsigned)b);
}
inline unsigned min(int a, unsigned b)
{
    return min((unsigned)a, b);
}
inline unsigned max(unsigned a, int b)
{
    return max(a, (unsigned)b);
}
inline unsigned max(int a, unsigned b)
{
    return max((unsigned)a, b);
}
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}
