#pragma once
/* The matrix product of each ISA, for its table (kernels/cpu/kernels.h). For every output: acc = 0;
 * for k = 0 .. K - 1 in order: acc = fma(x[k], w[k], acc); then the bias is added. w[k] is
 *
 *   Q8_0 d * q   Q4_0 d * (q - 8)   Q5_0 d * (q - 16)   Q3_K, Q6_K (d * sc) * (q - 4, q - 32)
 *   INT2, INT3, INT4, INT8 d * (q - zero)   FP8, IQ4_NL d * value   MXFP4 2^(e - 128) * (2 value)
 *   Q4_1, Q5_1 fma(d, q, min)   Q2_K, Q4_K, Q5_K fma(d * sc, q, -(dmin * m))
 *
 * with each product rounded as written. So a row's bits depend neither on the other rows nor on how
 * panels are given out. Nothing beyond column w->n is written. */
#include <assert.h>

#include "kernels/cpu/kernels.h"

/* What is compiled for each format: the product with up to max_few rows (task: all of panel_bytes
 * each), and k inputs of a panel as floats, out[k][16]. */
struct format_kernels {
    uint32_t max_few;
    void (*few)(const struct linear_task *t, uint64_t panel_bytes);
    void (*dequantize)(const uint8_t *p, uint32_t k, float *out);
};
typedef const struct format_kernels *format_table[DTYPE_COUNT]; /* NULL: in another table */

static inline const struct format_kernels *format_find(const format_table *const *tables,
                                                       uint32_t n, enum dtype dtype)
{
    for (uint32_t i = 0; i < n; i++)
        if ((*tables[i])[dtype])
            return (*tables[i])[dtype];
    assert(!"weight_bytes is 0 for other types");
    return NULL;
}

/* embed_row: out[k] = scale * w[id][k]; id < w->n. */
#define LINEAR_DECLARE(upper, isa)                                                                 \
    extern const format_table formats_plain_##isa, formats_blocks_##isa, formats_k_##isa,          \
        formats_ours_##isa, formats_rare_##isa;                                                    \
    void linear_##isa(const struct linear_task *t);                                                \
    void embed_row_##isa(const struct weight *w, uint32_t id, float scale, float *out);
CPU_LEVELS(LINEAR_DECLARE)
