#pragma once
/* Reads blocks of the formats, in the layout of files and the loader, into one neutral form for
 * dequantize_row and the packers. That form has scales, and one code a byte, with k in order.
 * GGML's layouts are those of ggml-common.h (block_q4_0 and so on), our own layouts those of
 * common/base/dtype.h. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/dtype.h"

enum { MAX_BLOCK = 256, MAX_GROUPS = 16 };

struct block {
    uint16_t d, dmin;                             /* scale and min of the block, as float16 */
    float d32;                                    /* float scale of INT8 and FP8 */
    uint8_t zero;                                 /* zero of INT2 .. INT8; exponent of MXFP4 */
    uint8_t scales[MAX_GROUPS], mins[MAX_GROUPS]; /* scale and min of each group of k */
    uint8_t codes[MAX_BLOCK];
};

/* `format_values` is the meaning of a code q. */
enum format_values {
    VALUES_PLAIN,      /* plain numbers, without codes */
    VALUES_OFFSET,     /* value = d * (q - offset) */
    VALUES_MIN,        /* value = d * q + dmin */
    VALUES_SCALED,     /* value = d * scale * (q - offset), with a scale for each group */
    VALUES_SCALED_MIN, /* value = d * scale * q - dmin * min */
    VALUES_ZERO,       /* value = d * (q - zero) */
    VALUES_ZERO_D32,   /* value = d32 * (q - zero), where q and zero are signed */
    VALUES_E4M3,       /* value = d32 * (e4m3 value of q) */
    VALUES_TABLE,      /* value = d * table[q] */
    VALUES_E2M1,       /* value = 2^(zero - 128) * table[q] */
    VALUES_COUNT
};

/* `format` describes a format. A block of block_elems elements has groups of group_elems. */
struct format {
    enum format_values values;
    uint32_t block_elems, group_elems, code_bits; /* code_bits 0 means plain numbers */
    uint32_t block_bytes;                         /* bytes of a block in the file */
    uint8_t offset;
    bool signed_codes, signed_scales; /* whether codes or scales are int8 */
    bool scales_are_nibbles;          /* whether scale and min of a group share one byte */
    const int8_t *table;
    void (*unpack)(struct block *b, const uint8_t *p);
};

/* mxfp4_values has twice the values of e2m1, the codes of MXFP4. */
extern const int8_t mxfp4_values[16], iq4_nl_values[16];

/* Returns the format of a dtype, or NULL when there is no kernel for this dtype. */
const struct format *format_of(enum dtype dtype);
/* Returns element i of a block. */
float block_value(const struct format *f, const struct block *b, uint32_t i);
/* Converts one row of the file's layout to floats, for norms, biases and tests. Returns false
 * for an unknown dtype. */
bool dequantize_row(enum dtype dtype, const void *row, uint32_t k, float *out);
