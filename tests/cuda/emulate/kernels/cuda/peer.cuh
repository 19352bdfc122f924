#pragma once
/* kernels/cuda/peer.cuh in the emulation: other ranks are processes, and memory that both see is
 * mapped by both. */
#include <cuda_runtime.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

inline void peer_store_release(uint32_t *flag, uint32_t v)
{
    __atomic_store_n(flag, v, __ATOMIC_RELEASE);
}

inline uint32_t peer_load_acquire(const uint32_t *flag)
{
    sched_yield(); /* who polls lets the other process go on */
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

inline uint64_t peer_clock_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
