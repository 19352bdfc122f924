#pragma once
/* Declares the kernels of each format of weights, in one table for each level and kind.
 * formats/KIND_ISA.c fills one table; linear/ finds a format's kernels in the five tables of a
 * level. */
#include <assert.h>

#include "kernels/cpu/kernels.h"

/* `format_kernels` holds the kernels of a format. One is the product with up to max_few rows,
 * over panels of panel_bytes each. The other converts k inputs of a panel to floats, out[k][16]. */
struct format_kernels {
    uint32_t max_few;
    void (*few)(const struct linear_task *t, uint64_t panel_bytes);
    void (*dequantize)(const uint8_t *p, uint32_t k, float *out);
};
/* an entry is NULL when the format is in another table */
typedef const struct format_kernels *format_table[DTYPE_COUNT];

static inline const struct format_kernels *format_find(const format_table *const *tables,
                                                       uint32_t n, enum dtype dtype)
{
    for (uint32_t i = 0; i < n; i++)
        if ((*tables[i])[dtype])
            return (*tables[i])[dtype];
    assert(!"weight_bytes is 0 for other types");
    return NULL;
}

#define FORMATS_DECLARE(upper, isa)                                                                \
    extern const format_table formats_plain_##isa, formats_blocks_##isa, formats_k_##isa,          \
        formats_ours_##isa, formats_rare_##isa;
CPU_LEVELS(FORMATS_DECLARE)
