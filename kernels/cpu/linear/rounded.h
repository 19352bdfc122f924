#pragma once
/* The matrix product of weights that are bfloat16 with rows that are rounded to it, to nearest
 * even, once for all outputs (docs/develop/decisions/0023). For every output: acc = 0; for k = 0 ..
 * K - 1 in order: acc = fma(x[k], w[k], acc); then the bias is added: linear.h's sum over other x,
 * but that numbers below the normal ones (2^-126) are zeros of their sign wherever they come up, in
 * x, in w, in acc and in the result.
 *
 * So it is what vdpbf16ps (AVX512_BF16) adds, which takes the high half of a pair first and rounds
 * after each product, and what any level's fused multiply-adds do where the system of the sums has
 * no such numbers (MXCSR's FTZ and DAZ, FPCR's FZ). All give the same bits, with one exception:
 * arm64 calls tiny what is so before it is rounded, and makes a zero of what would round up to
 * 2^-126. scalar rounds each product, which has 16 bits and so loses none, unless it is below
 * 2^-126 or beyond the largest float. */
#include "kernels/cpu/linear/rounded_sets.h"

/* On this CPU and its system? */
bool rounded_kernels_run(const struct rounded_kernels *kernels);
/* The best set of a level that this CPU runs; level_only: the level's own. */
const struct rounded_kernels *rounded_kernels_of(enum cpu_isa isa, bool level_only);

/* Floats from one row to the next: an odd number of cache lines, so that the rows of a tile do not
 * fall into one set. */
uint32_t rounded_stride(const struct rounded_kernels *kernels, uint32_t k);
/* kernels->linear without numbers below the normal ones. */
void rounded_linear(const struct rounded_kernels *kernels, const struct linear_task *t);
