#pragma once
/* Implements flags between kernels on different devices, through memory that both devices can
 * access. A flag is stored after its data and loaded before it, at system scope. The emulation
 * has a file of the same name (tests/cuda/emulate/kernels/cuda/comm/peer.cuh). */
#include <cuda_runtime.h>
#include <stdint.h>

__device__ __forceinline__ void peer_store_release(uint32_t *flag, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(v) : "memory");
}

__device__ __forceinline__ void peer_store_release(uint64_t *flag, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(v) : "memory");
}

__device__ __forceinline__ uint32_t peer_load_acquire(const uint32_t *flag)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    return v;
}

__device__ __forceinline__ uint64_t peer_load_acquire(const uint64_t *flag)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(flag) : "memory");
    return v;
}

/* Returns the device's clock in nanoseconds. The clock's steps may be as long as a millisecond. */
__device__ __forceinline__ uint64_t peer_clock_ns()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
