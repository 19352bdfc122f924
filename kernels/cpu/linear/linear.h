#pragma once
/* Declares the matrix product of each ISA, for the ISA's table (kernels/cpu/kernels.h). For
 * every output: acc = 0; for k = 0 .. K - 1 in order: acc = fma(x[k], w[k], acc); then the bias
 * is added. w[k] is
 *
 *   Q8_0 d * q   Q4_0 d * (q - 8)   Q5_0 d * (q - 16)   Q3_K, Q6_K (d * sc) * (q - 4, q - 32)
 *   INT2, INT3, INT4, INT8 d * (q - zero)   FP8, IQ4_NL d * value   MXFP4 2^(e - 128) * (2 value)
 *   Q4_1, Q5_1 fma(d, q, min)   Q2_K, Q4_K, Q5_K fma(d * sc, q, -(dmin * m))
 *
 * with each product rounded as written. A row's bits therefore depend neither on the other rows
 * nor on how panels are assigned to threads. Columns beyond w->n are not written. */
#include "kernels/cpu/kernels.h"

/* embed_row computes out[k] = scale * w[id][k]; `id` must be below w->n. */
#define LINEAR_DECLARE(upper, isa)                                                                 \
    void linear_##isa(const struct linear_task *t);                                                \
    void embed_row_##isa(const struct weight *w, uint32_t id, float scale, float *out);
CPU_LEVELS(LINEAR_DECLARE)
