#pragma once
/* The matrix product of each ISA, for its table (kernels/cpu/isa.h). For every output: acc = 0;
 * for k = 0 .. K - 1 in order: acc = fma(x[k], w[k], acc); then the bias is added. w[k] is
 *
 *   Q8_0 d * q   Q4_0 d * (q - 8)   Q5_0 d * (q - 16)   Q6_K (d * sc) * (q - 32)
 *   INT4 d * (q - zero)   FP8 d * value   MXFP4 2^(e - 128) * (2 value)
 *   Q4_K, Q5_K   fma(d * sc, q, -(dmin * m))
 *
 * with each product rounded as written. So a row's bits depend neither on the other rows nor on how
 * panels are given out. Nothing beyond column w->n is written. */
#include "kernels/cpu/isa.h"

void linear_scalar(const struct linear_task *t);
void linear_avx2(const struct linear_task *t);
void linear_avx512(const struct linear_task *t);
/* out[k] = scale * w[id][k]; id < w->n. */
void embed_row_scalar(const struct weight *w, uint32_t id, float scale, float *out);
void embed_row_avx2(const struct weight *w, uint32_t id, float scale, float *out);
void embed_row_avx512(const struct weight *w, uint32_t id, float scale, float *out);
