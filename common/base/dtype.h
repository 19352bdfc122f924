#pragma once
/* Number formats of stored weights. Values are GGML's type ids. A block of block_elems elements
 * takes block_bytes; a row is a whole number of blocks. block_elems 0: known by name, not
 * supported. From DTYPE_GGML_END on the ids are our own: formats of safetensors that GGML lacks. */
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
    DTYPE_GGML_END = 64, /* a GGUF can not name what follows */
    DTYPE_BOOL = DTYPE_GGML_END,
    DTYPE_U8,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_U64,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_OPAQUE, /* a name that is not known: bytes */
    /* The loader makes these of a file's several tensors, in blocks of 32 elements. INT2, INT3,
     * INT4: d f16, zero u8, a byte of nothing, codes of so many bits from the lowest on, and INT8:
     * d f32, zero i8, codes i8: d * (q - zero). FP8: d f32, then e4m3 codes: d * value. */
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

/* Any id; {"unknown", 0, 0} for one that is not in the table. */
struct dtype_traits dtype_traits(uint32_t id);
/* Bytes of n_rows rows of row_elems elements; false when a row is no whole number of blocks, the
 * type is not supported, or the product does not fit. */
bool dtype_bytes(uint32_t id, uint64_t row_elems, uint64_t n_rows, uint64_t *out);
