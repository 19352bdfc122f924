#pragma once
/* Defines CUDA's vector types, with CUDA's alignments. */
#include <stdint.h>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define EMULATE_VECTOR_2(type, name, align)                                                        \
    struct alignas(align) name {                                                                   \
        type x, y;                                                                                 \
    };                                                                                             \
    inline name make_##name(type x, type y)                                                        \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define EMULATE_VECTOR_3(type, name)                                                               \
    struct name {                                                                                  \
        type x, y, z;                                                                              \
    };                                                                                             \
    inline name make_##name(type x, type y, type z)                                                \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }
#define EMULATE_VECTOR_4(type, name, align)                                                        \
    struct alignas(align) name {                                                                   \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name make_##name(type x, type y, type z, type w)                                        \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
EMULATE_VECTOR_2(signed char, char2, 2)
EMULATE_VECTOR_2(unsigned char, uchar2, 2)
EMULATE_VECTOR_2(short, short2, 4)
EMULATE_VECTOR_2(unsigned short, ushort2, 4)
EMULATE_VECTOR_2(int, int2, 8)
EMULATE_VECTOR_2(unsigned, uint2, 8)
EMULATE_VECTOR_2(float, float2, 8)
EMULATE_VECTOR_2(double, double2, 16)
EMULATE_VECTOR_2(long long, longlong2, 16)
EMULATE_VECTOR_2(unsigned long long, ulonglong2, 16)
EMULATE_VECTOR_3(int, int3)
EMULATE_VECTOR_3(float, float3)
EMULATE_VECTOR_4(signed char, char4, 4)
EMULATE_VECTOR_4(unsigned char, uchar4, 4)
EMULATE_VECTOR_4(short, short4, 8)
EMULATE_VECTOR_4(unsigned short, ushort4, 8)
EMULATE_VECTOR_4(int, int4, 16)
EMULATE_VECTOR_4(unsigned, uint4, 16)
EMULATE_VECTOR_4(float, float4, 16)
#undef EMULATE_VECTOR_2
#undef EMULATE_VECTOR_3
#undef EMULATE_VECTOR_4

inline uint3 make_uint3(unsigned x, unsigned y, unsigned z)
{
    return {x, y, z};
}
