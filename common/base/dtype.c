#include "common/base/dtype.h"

static const struct dtype_traits table[] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 0, 0},
    [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},
    [19] = {"IQ1_S", 0, 0},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 0, 0},
    [22] = {"IQ2_S", 0, 0},
    [23] = {"IQ4_XS", 0, 0},
    [DTYPE_I8] = {"I8", 1, 1},
    [DTYPE_I16] = {"I16", 1, 2},
    [DTYPE_I32] = {"I32", 1, 4},
    [DTYPE_I64] = {"I64", 1, 8},
    [DTYPE_F64] = {"F64", 1, 8},
    [29] = {"IQ1_M", 0, 0},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 0, 0},
    [35] = {"TQ2_0", 0, 0},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [DTYPE_BOOL] = {"BOOL", 1, 1},
    [DTYPE_U8] = {"U8", 1, 1},
    [DTYPE_U16] = {"U16", 1, 2},
    [DTYPE_U32] = {"U32", 1, 4},
    [DTYPE_U64] = {"U64", 1, 8},
    [DTYPE_F8_E4M3] = {"F8_E4M3", 1, 1},
    [DTYPE_F8_E5M2] = {"F8_E5M2", 1, 1},
    [DTYPE_OPAQUE] = {"an unknown type", 0, 0},
    [DTYPE_INT2] = {"INT2", 32, 12},
    [DTYPE_INT3] = {"INT3", 32, 16},
    [DTYPE_INT4] = {"INT4", 32, 20},
    [DTYPE_INT8] = {"INT8", 32, 37},
    [DTYPE_FP8] = {"FP8", 32, 36},
};
_Static_assert(sizeof table / sizeof *table == DTYPE_COUNT, "a type has no row");

struct dtype_traits dtype_traits(uint32_t id)
{
    if (id < DTYPE_COUNT && table[id].name)
        return table[id];
    return (struct dtype_traits){"unknown", 0, 0};
}

bool dtype_bytes(uint32_t id, uint64_t row_elems, uint64_t n_rows, uint64_t *out)
{
    struct dtype_traits t = dtype_traits(id);
    if (t.block_elems == 0 || row_elems % t.block_elems != 0)
        return false;
    uint64_t row_bytes;
    return !__builtin_mul_overflow(row_elems / t.block_elems, (uint64_t)t.block_bytes,
                                   &row_bytes) &&
           !__builtin_mul_overflow(row_bytes, n_rows, out);
}
