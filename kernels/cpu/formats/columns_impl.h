#pragma once
/* Loads and stores a panel's columns, for few_impl.h and linear/linear_impl.h. */
#include "kernels/cpu/formats/formats_impl.h"
#include "kernels/cpu/kernels.h"

/* GEMV_n is the number of panels side by side for n rows, so that their accumulators fill the
 * registers: 32 vectors, 16 halves or 16 quarters. 0 means that there is no such kernel. */
#if defined(__AVX512F__)
enum { GEMV_1 = 4, GEMV_2 = 4, GEMV_4 = 2, GEMV_8 = 2, GEMV_MAX_ROWS = 8 };
enum { GEMM_PANELS = 2, GEMM_ROWS = 12 };
/* NEON has half as many lanes and twice as many registers */
#elif defined(__AVX2__) || defined(VEC_NEON)
enum { GEMV_1 = 4, GEMV_2 = 2, GEMV_4 = 1, GEMV_8 = 0, GEMV_MAX_ROWS = 4 };
enum { GEMM_PANELS = 1, GEMM_ROWS = 6 };
#else
enum { GEMV_1 = 2, GEMV_2 = 1, GEMV_4 = 0, GEMV_8 = 0, GEMV_MAX_ROWS = 2 };
enum { GEMM_PANELS = 1, GEMM_ROWS = 2 };
#endif

KERNEL_INLINE vf load_columns(const float *p, uint32_t n)
{
    return n == PANEL_N ? vf_load(p) : vf_load_n(p, n);
}
KERNEL_INLINE void store_columns(float *p, vf v, uint32_t n)
{
    if (n == PANEL_N)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}
