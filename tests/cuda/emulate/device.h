#pragma once
/* Implements CUDA's language and its built-in functions in the emulation: keywords, indices,
 * barriers, shuffles, atomics. device_math.h has the arithmetic. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "types.h"

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __align__(n)           __attribute__((aligned(n)))
#define __launch_bounds__(...) /* the launch itself refuses blocks with too many threads */
/* Host threads run their grids side by side, so each host thread has its own __shared__
 * variables. AddressSanitizer checks the bounds of global variables only, so with it the grids
 * run one at a time (engine.cpp). The variables are not poisoned before a block, unlike dynamic
 * shared memory: they still hold the last block's values. */
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static __thread
#endif

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;
constexpr int warpSize = (int)emulate::WARP;

inline void __syncthreads()
{
    emulate::barrier(emulate::BARRIER_PLAIN, false);
}
inline int __syncthreads_or(int predicate)
{
    return emulate::barrier(emulate::BARRIER_OR, predicate != 0);
}
inline int __syncthreads_and(int predicate)
{
    return emulate::barrier(emulate::BARRIER_AND, predicate != 0);
}
inline int __syncthreads_count(int predicate)
{
    return emulate::barrier(emulate::BARRIER_COUNT, predicate != 0);
}
void __syncwarp(uint32_t mask = emulate::ALL_LANES);
uint32_t __ballot_sync(uint32_t mask, int predicate);
inline int __any_sync(uint32_t mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
int __all_sync(uint32_t mask, int predicate);
inline uint32_t __activemask() /* all lanes that have not left count as converged */
{
    return emulate::lanes_alive();
}
uint32_t __match_any_sync(uint32_t mask, uint32_t value);

namespace emulate
{
enum reduction { REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_AND, REDUCE_OR, REDUCE_XOR };
uint32_t reduce(uint32_t mask, reduction how, bool is_signed, uint32_t value);
/* param: number of the source lane; a missing lane gives all ones */
extern const warp_call SHUFFLE;

template <class T> inline T shuffle_value(uint32_t mask, T value, unsigned from)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what a shuffle moves");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = meet(mask, &SHUFFLE, bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}
/* Returns the lane that is `by` lanes lower in its group of `width`. If that lane is beyond the
 * group, it returns the calling lane. */
inline unsigned lane_up(unsigned by, int width)
{
    const unsigned lane = lane_index(), first = lane & ~((unsigned)width - 1);
    return lane >= first + by ? lane - by : lane;
}
inline unsigned lane_down(unsigned by, int width)
{
    const unsigned lane = lane_index(), last = lane | ((unsigned)width - 1);
    return by <= last - lane ? lane + by : lane;
}
inline unsigned lane_xor(unsigned by, int width)
{
    const unsigned lane = lane_index(), other = lane ^ by;
    return other <= (lane | ((unsigned)width - 1)) ? other : lane;
}
inline unsigned lane_at(int i, int width)
{
    return (lane_index() & ~((unsigned)width - 1)) | ((unsigned)i & ((unsigned)width - 1));
}
} // namespace emulate

template <class T> inline T __shfl_sync(uint32_t mask, T v, int lane, int width = 32)
{
    return emulate::shuffle_value(mask, v, emulate::lane_at(lane, width));
}
template <class T> inline T __shfl_up_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    return emulate::shuffle_value(mask, v, emulate::lane_up(by, width));
}
template <class T> inline T __shfl_down_sync(uint32_t mask, T v, unsigned by, int width = 32)
{
    return emulate::shuffle_value(mask, v, emulate::lane_down(by, width));
}
template <class T> inline T __shfl_xor_sync(uint32_t mask, T v, int by, int width = 32)
{
    return emulate::shuffle_value(mask, v, emulate::lane_xor((unsigned)by, width));
}

inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_ADD, false, v);
}
inline int __reduce_add_sync(uint32_t mask, int v)
{
    return (int)emulate::reduce(mask, emulate::REDUCE_ADD, true, (uint32_t)v);
}
inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_MIN, false, v);
}
inline int __reduce_min_sync(uint32_t mask, int v)
{
    return (int)emulate::reduce(mask, emulate::REDUCE_MIN, true, (uint32_t)v);
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_MAX, false, v);
}
inline int __reduce_max_sync(uint32_t mask, int v)
{
    return (int)emulate::reduce(mask, emulate::REDUCE_MAX, true, (uint32_t)v);
}
inline uint32_t __reduce_and_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_AND, false, v);
}
inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_OR, false, v);
}
inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t v)
{
    return emulate::reduce(mask, emulate::REDUCE_XOR, false, v);
}

/* Does nothing, because all threads of a grid run on one host thread. */
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
inline void __threadfence_system()
{
}
[[noreturn]] inline void __trap()
{
    emulate::die("__trap");
}
