#pragma once
/* Declares the tensor core's instructions, over the fragments of PTX ISA 9.7.14 ("Matrix
 * fragments for mma.m16n8k16", "ldmatrix"). All 32 lanes must call them. dot() is a product for
 * loops on the host. */
#include <stdint.h>

namespace emulate
{
void mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b);
void ldmatrix(uint32_t *r, const void *row, unsigned n_matrices, bool trans);
/* Returns the sum over i of a[i] b[i], in sixteen interleaved parts. */
float dot(const float *a, const float *b, uint64_t n);
/* Adds n to emulate_n_operations. */
void operations_count(unsigned long long n);
} // namespace emulate
