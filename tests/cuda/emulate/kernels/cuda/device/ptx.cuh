#pragma once
/* Implements kernels/cuda/device/ptx.cuh in the emulation: the same functions over engine.h and
 * tensor.h. */
#include <cuda_runtime.h>

#include "tests/cuda/emulate/tensor.h"

#define CUDA_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulate::dynamic_shared())

inline void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulate::mma_bf16_16816(d, a, b);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void *smem)
{
    emulate::ldmatrix(r, smem, 4, false);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *smem)
{
    emulate::ldmatrix(r, smem, 4, true);
}

inline void ldmatrix_x2(uint32_t (&r)[2], const void *smem)
{
    emulate::ldmatrix(r, smem, 2, false);
}

inline void cp_async_16(void *smem, const void *global, bool valid)
{
    emulate::copy_begin(smem, global, 16, valid);
}

inline void cp_async_commit()
{
    emulate::copy_commit();
}

template <unsigned N_LEFT> inline void cp_async_wait()
{
    emulate::copy_wait(N_LEFT);
}

inline uint4 load_stream_16(const void *global)
{
    emulate::prefetch_used(global);
    return *static_cast<const uint4 *>(global);
}

inline void prefetch_l2(const void *global)
{
    emulate::prefetch(global);
}

inline float exp2_fast(float x)
{
    const float v = exp2f(x);
    return v < 0x1p-126f ? 0.0f : v; /* a NaN stays NaN */
}

inline void dependency_wait()
{
}

inline void dependency_launch()
{
}
