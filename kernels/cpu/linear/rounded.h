#pragma once
/* Declares the matrix product of bfloat16 weights with rows that are rounded to bfloat16, to
 * nearest even, once for all outputs (docs/develop/decisions/0023). For every output: acc = 0;
 * for k = 0 .. K - 1 in order: acc = fma(x[k], w[k], acc); then the bias is added. This is the
 * sum of linear.h over the rounded x, with one exception: subnormal numbers (below 2^-126)
 * become zeros of their sign in x, in w, in acc and in the result.
 *
 * vdpbf16ps (AVX512_BF16) computes this sum: it adds the product of a pair's high halves first
 * and rounds after each product. The fused multiply-adds of any level compute it too when
 * subnormals are off (MXCSR's FTZ and DAZ, FPCR's FZ). All give the same bits, with one
 * exception: arm64 detects a subnormal before it rounds, so a number that would round up to
 * 2^-126 becomes zero. The scalar level rounds each product. This rounding is exact, since a
 * product has 16 bits, unless it is below 2^-126 or above the largest float. */
#include "kernels/cpu/linear/rounded_sets.h"

/* Returns whether this CPU and its system run the set. */
bool rounded_kernels_run(const struct rounded_kernels *kernels);
/* Returns the best set of level `isa` that this CPU supports. With level_only it returns the
 * level's own set, without extensions. */
const struct rounded_kernels *rounded_kernels_of(enum cpu_isa isa, bool level_only);

/* Returns the floats from one row to the next: an odd number of cache lines, so that the rows of
 * a tile do not share one set of the cache. */
uint32_t rounded_stride(const struct rounded_kernels *kernels, uint32_t k);
/* Calls kernels->linear with subnormal numbers off. */
void rounded_linear(const struct rounded_kernels *kernels, const struct linear_task *t);
