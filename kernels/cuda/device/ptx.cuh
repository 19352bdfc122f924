#pragma once
/* Wraps instructions that CUDA has no function for: matrix products of the tensor cores and
 * their loads, asynchronous copies, streaming loads, dependent launches. The emulation has its
 * own file of this name (tests/cuda/emulate/kernels/cuda/device/ptx.cuh); keep both files alike.
 *
 * mma and ldmatrix need the whole warp: all 32 lanes, converged. Fragments (PTX ISA, "Matrix
 * fragments for mma.m16n8k16"), with g = lane / 4, t = lane % 4, and two bfloat16 to a word,
 * lower first:
 *   a  16 x 16: a[0] row g columns 2t, 2t + 1; a[1] row g + 8; a[2] row g columns + 8; a[3] both
 *   b  16 x  8: b[0] rows 2t, 2t + 1 of column g; b[1] rows + 8
 *   d  16 x  8: d[0], d[1] row g columns 2t, 2t + 1; d[2], d[3] row g + 8 */
#include <cuda_runtime.h>
#include <stdint.h>

/* Declares the block's dynamic shared memory (dynamicSmemBytes of the launch), aligned to 128
 * bytes. All kernels of a file share one declaration, with any type. */
#define CUDA_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(128) unsigned char cuda_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(cuda_dynamic_shared)

__device__ __forceinline__ uint32_t shared_address(const void *smem)
{
    return (uint32_t)__cvta_generic_to_shared(smem);
}

/* Computes d += a b; the sums are float. */
__device__ __forceinline__ void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads matrices of 8 x 8 elements of 2 bytes from shared memory. Lane 8 i + j gives the address
 * of row j of matrix i (16 bytes, with that alignment). r[i] receives row g, columns 2t and 2t +
 * 1 of matrix i. With trans, r[i] receives column g, rows 2t and 2t + 1. x2 ignores the
 * addresses of lanes 16 to 31. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(smem))
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(smem))
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void *smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(smem))
                 : "memory");
}

/* Copies 16 bytes from global into shared memory, bypassing registers and the first-level cache;
 * both addresses must be aligned to 16 bytes. If not valid, it writes zeros and does not read
 * `global`, which must still be a device address. The data has arrived after this thread's
 * cp_async_wait of its group; other threads need a barrier too. */
__device__ __forceinline__ void cp_async_16(void *smem, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(smem)),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
                 : "memory");
}

/* Ends a group. A group is all copies since the previous commit. */
__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all of this thread's groups except the last N_LEFT. */
template <unsigned N_LEFT> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N_LEFT) : "memory");
}

/* Loads global memory that is not written while the kernel runs and is read once (weights). The
 * data is not kept in the first-level cache. The address is aligned to the size. */
__device__ __forceinline__ uint4 load_stream_16(const void *global)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(__cvta_generic_to_global(global)));
    return v;
}

/* Prefetches at least the 32 bytes around the address into the L2 cache. The address must be in
 * device memory. No thread waits for it. */
__device__ __forceinline__ void prefetch_l2(const void *global)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
}

/* Returns 2^x in one instruction, within 2 units of the last place. Results below 2^-126 are
 * zero. */
__device__ __forceinline__ float exp2_fast(float x)
{
    float v;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}

/* Implements programmatic dependent launch. A kernel launched with
 * cudaLaunchAttributeProgrammaticStreamSerialization may begin before the kernel before it has
 * ended. dependency_wait waits until the earlier kernel has ended and its writes are visible.
 * Call it before accessing data that other kernels write. dependency_launch lets the next kernel
 * begin. Without the attribute, and below sm_90, both functions do nothing. */
__device__ __forceinline__ void dependency_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void dependency_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
