#pragma once
/* Lists the number formats of stored weights. Their values are GGML's type ids. A block of
 * `block_elems` elements takes `block_bytes`, and a row is a whole number of blocks. A
 * `block_elems` of 0 marks a format whose name is known but that is not supported. The ids from
 * DTYPE_GGML_END on are our own, for formats of safetensors that GGML lacks. */
#include <stdbool.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_BF16 = 30,
    DTYPE_MXFP4 = 39,
    DTYPE_GGML_END = 64, /* a GGUF file cannot name the formats from here on */
    DTYPE_BOOL = DTYPE_GGML_END,
    DTYPE_U8,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_U64,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_OPAQUE, /* an unknown name; treated as bytes */
    /* The loader builds these formats from several tensors of a file, in blocks of 32 elements.
     * INT2, INT3 and INT4 hold a scale d (f16), a zero point (u8), one unused byte, then the
     * codes q, packed from the lowest bit on. INT8 holds d (f32), the zero point (i8), then the
     * codes q (i8). In all four a code means d * (q - zero). FP8 holds d (f32), then e4m3 codes,
     * which mean d * code. */
    DTYPE_INT2,
    DTYPE_INT3,
    DTYPE_INT4,
    DTYPE_INT8,
    DTYPE_FP8,
    DTYPE_COUNT
};

struct dtype_traits {
    const char *name;
    uint32_t block_elems, block_bytes;
};

/* Returns the traits of any id, and {"unknown", 0, 0} for an id that is not in the table. */
struct dtype_traits dtype_traits(uint32_t id);
/* Computes the bytes of `n_rows` rows of `row_elems` elements in format `id`. Returns false when
 * a row is not a whole number of blocks, when the format is not supported, or when the product
 * overflows. */
bool dtype_bytes(uint32_t id, uint64_t row_elems, uint64_t n_rows, uint64_t *out);
