/* Chooses the sets of rounded.h that this CPU can run, and multiplies with subnormal numbers
 * off. */
#include "kernels/cpu/linear/rounded.h"

#ifndef __aarch64__
#include <xmmintrin.h>
#endif

#include "kernels/cpu/linear/linear.h"
#include "kernels/cpu/row/row.h"
#include "kernels/cpu/x86.h"

#define OF_LEVEL(upper, isa_)                                                                      \
    const struct rounded_kernels rounded_kernels_##isa_ = {                                        \
        .name = NULL, .in_pairs = false, .linear = linear_##isa_, .round = row_round_##isa_};
CPU_LEVELS(OF_LEVEL)

#ifdef __aarch64__
static bool has_more(const struct rounded_kernels *kernels)
{
    return true;
}
#else
static bool has_more(const struct rounded_kernels *kernels)
{
    if (kernels != &rounded_kernels_avx512_bf16)
        return true;
    return x86_has(X86_AVX512_BF16) && rounded_avx512_bf16_adds_in_order();
}
#endif

#define ROUNDED_SET(set, level) {&rounded_kernels_##set, CPU_ISA_##level},
static const struct {
    const struct rounded_kernels *kernels;
    enum cpu_isa level;
} rounded_sets[] = {ROUNDED_SETS(ROUNDED_SET)};
enum { N_SETS = sizeof rounded_sets / sizeof *rounded_sets };

bool rounded_kernels_run(const struct rounded_kernels *kernels)
{
    for (uint32_t i = 0; i < N_SETS; i++)
        if (rounded_sets[i].kernels == kernels)
            return rounded_sets[i].level <= cpu_isa_best() && has_more(kernels);
    return false;
}

const struct rounded_kernels *rounded_kernels_of(enum cpu_isa isa, bool level_only)
{
    const struct rounded_kernels *best = &rounded_kernels_scalar;
    for (uint32_t i = 0; i < N_SETS; i++)
        if (rounded_sets[i].level == isa && (!level_only || !rounded_sets[i].kernels->name) &&
            has_more(rounded_sets[i].kernels))
            best = rounded_sets[i].kernels;
    return best;
}

uint32_t rounded_stride(const struct rounded_kernels *kernels, uint32_t k)
{
    enum { LINE = 16 };
    const uint32_t n = kernels->in_pairs ? (k + 1) / 2 : k;
    return ((n + LINE - 1) / LINE | 1u) * LINE;
}

/* ---- treating subnormal numbers as zeros, in the calling thread ---- */

#ifdef __aarch64__
static uint64_t flush_begin(void)
{
    enum { FZ = 1 << 24 };
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | FZ) : "memory");
    return before;
}
static void flush_end(uint64_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}
#else
static uint64_t flush_begin(void)
{
    enum { FTZ_AND_DAZ = 0x8040 };
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | FTZ_AND_DAZ);
    return before;
}
static void flush_end(uint64_t before)
{
    _mm_setcsr((uint32_t)before);
}
#endif

void rounded_linear(const struct rounded_kernels *kernels, const struct linear_task *t)
{
    const uint64_t before = flush_begin();
    kernels->linear(t);
    flush_end(before);
}
