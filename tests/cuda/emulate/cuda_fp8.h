#pragma once
/* Implements CUDA's e4m3 on the host, with only the saturation to finite values. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef uint8_t __nv_fp8_storage_t;
typedef uint16_t __nv_fp8x2_storage_t;
typedef uint32_t __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float v, __nv_saturation_t,
                                                __nv_fp8_interpretation_t)
{
    return emulate::e4m3_bits(v);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t,
                                                     __nv_fp8_interpretation_t)
{
    return (uint16_t)(emulate::e4m3_bits(v.x) | emulate::e4m3_bits(v.y) << 8);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw v, __nv_saturation_t,
                                                  __nv_fp8_interpretation_t)
{
    return emulate::e4m3_bits(emulate::half_value(v.x));
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t v, __nv_fp8_interpretation_t)
{
    return {emulate::half_bits(emulate::e4m3_value(v))};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v, __nv_fp8_interpretation_t)
{
    return {emulate::half_bits(emulate::e4m3_value((uint8_t)v)),
            emulate::half_bits(emulate::e4m3_value((uint8_t)(v >> 8)))};
}

struct __nv_fp8_e4m3 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e4m3() = default;
    explicit __nv_fp8_e4m3(float v) : __x(emulate::e4m3_bits(v))
    {
    }
    explicit __nv_fp8_e4m3(__half v) : __x(emulate::e4m3_bits((float)v))
    {
    }
    explicit __nv_fp8_e4m3(__nv_bfloat16 v) : __x(emulate::e4m3_bits((float)v))
    {
    }
    explicit operator float() const
    {
        return emulate::e4m3_value(__x);
    }
};
