#pragma once
/* The matrix product of weights that are bfloat16 with rows that are rounded to it, to nearest
 * even, once for all outputs (docs/decisions/0023). For every output: acc = 0; for k = 0 .. K - 1
 * in order: acc = fma(x[k], w[k], acc); then the bias is added: linear.h's sum over other x, but
 * that numbers below the normal ones (2^-126) are zeros of their sign wherever they come up, in x,
 * in w, in acc and in the result.
 *
 * So it is what vdpbf16ps (AVX512_BF16) adds, which takes the high half of a pair first and rounds
 * after each product, and what any level's fused multiply-adds do where the system of the sums has
 * no such numbers (MXCSR's FTZ and DAZ, FPCR's FZ). All give the same bits, with one exception:
 * arm64 calls tiny what is so before it is rounded, and makes a zero of what would round up to
 * 2^-126. scalar rounds each product, which has 16 bits and so loses none, unless it is below
 * 2^-126 or beyond the largest float. */
#include "kernels/cpu/kernels.h"

/* One set for each level, and what is faster beside it. */
struct rounded_kernels {
    const char *name; /* of the level and what it needs beside it; NULL: nothing */
    bool in_pairs;    /* rows are words of two bfloat16, as weights are (pack.h) */
    /* Of a weight of bfloat16; x: rows as round leaves them. Called by rounded_linear. */
    void (*linear)(const struct linear_task *t);
    void (*round)(float *to, const float *x, uint32_t k); /* k numbers: a row */
};
/* do_(set, level), lowest first. */
#ifdef __aarch64__
#define ROUNDED_SETS(do_) do_(scalar, SCALAR) do_(neon, NEON)
#else
#define ROUNDED_SETS(do_)                                                                          \
    do_(scalar, SCALAR) do_(avx2, AVX2) do_(avx512, AVX512) do_(avx512_bf16, AVX512)
/* Whether vdpbf16ps adds as is written above: who made the CPU has the last word. */
bool rounded_avx512_bf16_adds_in_order(void);
#endif
#define ROUNDED_DECLARE(set, level) extern const struct rounded_kernels rounded_kernels_##set;
ROUNDED_SETS(ROUNDED_DECLARE)
#undef ROUNDED_DECLARE
/* On this CPU and its system? */
bool rounded_kernels_run(const struct rounded_kernels *kernels);
/* The best set of a level that this CPU runs; level_only: the level's own. */
const struct rounded_kernels *rounded_kernels_of(enum cpu_isa isa, bool level_only);

/* Floats from one row to the next: an odd number of cache lines, so that the rows of a tile do not
 * fall into one set. */
uint32_t rounded_stride(const struct rounded_kernels *kernels, uint32_t k);
/* kernels->linear without numbers below the normal ones. */
void rounded_linear(const struct rounded_kernels *kernels, const struct linear_task *t);
