#pragma once
/* kernels/cuda/comm/peer.cuh in the emulation: other ranks are processes, and memory that both see
 * is mapped by both. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <time.h>

template <class T> inline void peer_store_release(T *flag, T v)
{
    __atomic_store_n(flag, v, __ATOMIC_RELEASE);
}

/* Who polls a flag lets the other process go on: naps, since on a busy machine one that only yields
 * gets its turn after everybody else. */
template <class T> inline T peer_load_acquire(const T *flag)
{
    static thread_local const void *last;
    static thread_local unsigned n_polls;
    n_polls = last == flag ? n_polls + 1 : 0;
    last = flag;
    if (n_polls > 4) {
        const timespec nap = {0, 20000};
        nanosleep(&nap, nullptr);
    }
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

inline uint64_t peer_clock_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
