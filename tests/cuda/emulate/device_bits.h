#pragma once
/* Implements operations on bits: reinterpretation, counting, permutation, and integer products. */
#include <stdint.h>
#include <string.h>

namespace emulate
{
template <class To, class From> inline To bits_as(From v)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To out;
    memcpy(&out, &v, sizeof out);
    return out;
}
} // namespace emulate

inline float __uint_as_float(uint32_t v)
{
    return emulate::bits_as<float>(v);
}
inline uint32_t __float_as_uint(float v)
{
    return emulate::bits_as<uint32_t>(v);
}
inline float __int_as_float(int v)
{
    return emulate::bits_as<float>(v);
}
inline int __float_as_int(float v)
{
    return emulate::bits_as<int>(v);
}
inline long long __double_as_longlong(double v)
{
    return emulate::bits_as<long long>(v);
}
inline double __longlong_as_double(long long v)
{
    return emulate::bits_as<double>(v);
}
inline int __popc(uint32_t v)
{
    return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
inline int __clz(int v)
{
    return v ? __builtin_clz((unsigned)v) : 32;
}
inline int __clzll(long long v)
{
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
inline uint32_t __brev(uint32_t v)
{
    v = __builtin_bswap32(v);
    v = (v & 0x0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0fu);
    v = (v & 0x33333333u) << 2 | (v >> 2 & 0x33333333u);
    return (v & 0x55555555u) << 1 | (v >> 1 & 0x55555555u);
}
/* Returns a word whose byte i is byte (selector >> 4 i & 7) of y:x, or the sign of that byte
 * eight times (bit 3). */
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t byte = (uint32_t)(bytes >> (selector >> 4 * i & 7) * 8) & 0xff;
        if (selector >> 4 * i & 8)
            byte = byte & 0x80 ? 0xff : 0;
        out |= byte << 8 * i;
    }
    return out;
}
inline uint32_t __funnelshift_l(uint32_t lo, uint32_t hi, uint32_t by)
{
    return (uint32_t)(((uint64_t)hi << 32 | lo) << (by & 31) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t lo, uint32_t hi, uint32_t by)
{
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> (by & 31));
}
inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __dp4a(int a, int b, int c)
{
    for (unsigned i = 0; i < 4; i++)
        c += (int)(int8_t)((uint32_t)a >> 8 * i) * (int)(int8_t)((uint32_t)b >> 8 * i);
    return c;
}
