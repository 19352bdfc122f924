#pragma once
/* Implements kernels/cuda/comm/peer.cuh in the emulation. Other ranks are processes, and both
 * sides map shared memory. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <time.h>

template <class T> inline void peer_store_release(T *flag, T v)
{
    __atomic_store_n(flag, v, __ATOMIC_RELEASE);
}

/* Loads a flag. The function sleeps for a short time, because the other process must run while a
 * flag is polled: on a busy machine, a process that only yields would run after all others. */
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
