#include "bench/cpu/ceilings.h"

#include <stdint.h>
#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

enum { STEPS = 200000 };

/* `sink` receives results, so that the compiler cannot drop the work. */
static volatile uint64_t sink;

#ifdef __aarch64__
enum { NEON_SUMS = 16 };
static void fma_neon(void)
{
    float32x4_t acc[NEON_SUMS], x = vdupq_n_f32(0.5f);
    for (int i = 0; i < NEON_SUMS; i++)
        acc[i] = vdupq_n_f32((float)i);
    for (uint32_t step = 0; step < STEPS; step++)
        for (int i = 0; i < NEON_SUMS; i++)
            acc[i] = vfmaq_f32(x, acc[i], x);
    for (int i = 1; i < NEON_SUMS; i++)
        acc[0] = vaddq_f32(acc[0], acc[i]);
    sink = (uint64_t)vgetq_lane_f32(acc[0], 0);
}

void cpu_ceiling_fma(enum cpu_isa isa)
{
    if (isa == CPU_ISA_NEON)
        fma_neon();
}

double cpu_ceiling_fma_flop(enum cpu_isa isa)
{
    return isa == CPU_ISA_NEON ? 2.0 * STEPS * NEON_SUMS * 4 : 0;
}
#else
enum { AVX2_SUMS = 12, AVX512_SUMS = 16 };
__attribute__((target("avx512f"))) static void fma_avx512(void)
{
    __m512 acc[AVX512_SUMS], x = _mm512_set1_ps(0.5f);
    for (int i = 0; i < AVX512_SUMS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (uint32_t step = 0; step < STEPS; step++)
        for (int i = 0; i < AVX512_SUMS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], x, x);
    for (int i = 1; i < AVX512_SUMS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    sink = (uint64_t)_mm512_reduce_add_ps(acc[0]);
}
__attribute__((target("avx2,fma"))) static void fma_avx2(void)
{
    __m256 acc[AVX2_SUMS], x = _mm256_set1_ps(0.5f);
    for (int i = 0; i < AVX2_SUMS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (uint32_t step = 0; step < STEPS; step++)
        for (int i = 0; i < AVX2_SUMS; i++)
            acc[i] = _mm256_fmadd_ps(acc[i], x, x);
    for (int i = 1; i < AVX2_SUMS; i++)
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    sink = (uint64_t)_mm256_cvtss_f32(acc[0]);
}

void cpu_ceiling_fma(enum cpu_isa isa)
{
    if (isa == CPU_ISA_AVX512)
        fma_avx512();
    else if (isa == CPU_ISA_AVX2)
        fma_avx2();
}

double cpu_ceiling_fma_flop(enum cpu_isa isa)
{
    return isa == CPU_ISA_AVX512 ? 2.0 * STEPS * AVX512_SUMS * 16
           : isa == CPU_ISA_AVX2 ? 2.0 * STEPS * AVX2_SUMS * 8
                                 : 0;
}
#endif

void cpu_ceiling_read(const void *p, size_t n_bytes)
{
    typedef uint64_t two __attribute__((vector_size(16)));
    const two *at = (const two *)p, *end = at + n_bytes / sizeof *at;
    two s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    for (; at < end; at += 4) {
        s0 ^= at[0];
        s1 ^= at[1];
        s2 ^= at[2];
        s3 ^= at[3];
    }
    s0 ^= s1 ^ s2 ^ s3;
    sink = s0[0];
}
