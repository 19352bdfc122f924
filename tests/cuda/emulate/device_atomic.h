#pragma once
/* Implements atomics and cached loads. Grids of several streams may run side by side, so the
 * atomics are those of the host. */
#include <stdint.h>
#include <string.h>

namespace emulate
{
template <class T, class F> inline T atomic_update(T *at, F change)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what a device's atomics take");
    T old, now;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        now = change(old);
    while (!__atomic_compare_exchange(at, &old, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
} // namespace emulate

#define EMULATE_ATOMIC_INTEGER(type)                                                               \
    inline type atomicAdd(type *at, type v)                                                        \
    {                                                                                              \
        return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);                                        \
    }                                                                                              \
    inline type atomicExch(type *at, type v)                                                       \
    {                                                                                              \
        return __atomic_exchange_n(at, v, __ATOMIC_RELAXED);                                       \
    }                                                                                              \
    inline type atomicCAS(type *at, type want, type v)                                             \
    {                                                                                              \
        __atomic_compare_exchange_n(at, &want, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);      \
        return want;                                                                               \
    }                                                                                              \
    inline type atomicMin(type *at, type v)                                                        \
    {                                                                                              \
        return emulate::atomic_update(at, [v](type old) { return v < old ? v : old; });            \
    }                                                                                              \
    inline type atomicMax(type *at, type v)                                                        \
    {                                                                                              \
        return emulate::atomic_update(at, [v](type old) { return v > old ? v : old; });            \
    }                                                                                              \
    inline type atomicAnd(type *at, type v)                                                        \
    {                                                                                              \
        return __atomic_fetch_and(at, v, __ATOMIC_RELAXED);                                        \
    }                                                                                              \
    inline type atomicOr(type *at, type v)                                                         \
    {                                                                                              \
        return __atomic_fetch_or(at, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    inline type atomicXor(type *at, type v)                                                        \
    {                                                                                              \
        return __atomic_fetch_xor(at, v, __ATOMIC_RELAXED);                                        \
    }
EMULATE_ATOMIC_INTEGER(int)
EMULATE_ATOMIC_INTEGER(unsigned)
EMULATE_ATOMIC_INTEGER(unsigned long long)
#undef EMULATE_ATOMIC_INTEGER

inline int atomicSub(int *at, int v)
{
    return atomicAdd(at, -v);
}
inline unsigned atomicSub(unsigned *at, unsigned v)
{
    return atomicAdd(at, 0u - v);
}
inline unsigned atomicInc(unsigned *at, unsigned last)
{
    return emulate::atomic_update(at, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
inline float atomicAdd(float *at, float v)
{
    return emulate::atomic_update(at, [v](float old) { return old + v; });
}
inline double atomicAdd(double *at, double v)
{
    return emulate::atomic_update(at, [v](double old) { return old + v; });
}
inline float atomicExch(float *at, float v)
{
    return emulate::atomic_update(at, [v](float) { return v; });
}

template <class T> inline T __ldg(const T *at)
{
    return *at;
}
template <class T> inline T __ldcg(const T *at)
{
    return *at;
}
template <class T> inline T __ldcs(const T *at)
{
    return *at;
}
template <class T> inline T __ldca(const T *at)
{
    return *at;
}
template <class T> inline T __ldcv(const T *at)
{
    return *at;
}
template <class T> inline void __stcg(T *at, T v)
{
    *at = v;
}
template <class T> inline void __stcs(T *at, T v)
{
    *at = v;
}
template <class T> inline void __stwt(T *at, T v)
{
    *at = v;
}
