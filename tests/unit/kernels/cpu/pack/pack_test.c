/* Tests values of quantised formats, and packed panels. Values are compared with hashes that
 * were made with `quants.dequantize` of the Python package gguf. A reader that follows the
 * description in pack.h reads the panels back, which must give the same values. Invariants: all
 * bytes of a panel have the described size, and outputs that fill up the last panel are zero.
 * All data are seeded random numbers. */
#include "kernels/cpu/pack/pack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/kernels/cpu/weights_fixture.h"

/* Hashes 4096 values. The bytes of the blocks are the low bytes of `rng_next`, with the id of
 * the dtype as seed. The top exponent bit of each float16 and bfloat16 is cleared, so that the
 * value is finite. The hash is 64-bit FNV-1a over the little-endian floats. */
static void test_values(void **state)
{
    static const struct {
        enum dtype dtype;
        uint64_t hash;
        uint8_t high[2]; /* places of the bytes with the top exponent bit */
    } cases[] = {
        {DTYPE_F16, 0x3914a2d35947fdf5, {1}},       {DTYPE_BF16, 0x1032ab29c1a6672a, {1}},
        {DTYPE_Q8_0, 0x69382dfa28a86315, {1}},      {DTYPE_Q4_0, 0x6b257c08f8d12c72, {1}},
        {DTYPE_Q5_0, 0xdeecb039ecb8f9b6, {1}},      {DTYPE_Q4_K, 0xd59a016373dfbf81, {1, 3}},
        {DTYPE_Q5_K, 0x4ec2816f15f1b782, {1, 3}},   {DTYPE_Q6_K, 0x9aadcce5694fcd41, {209}},
        {DTYPE_Q4_1, 0xc45e3252af1a685c, {1, 3}},   {DTYPE_Q5_1, 0x79f73d5d3df30d4c, {1, 3}},
        {DTYPE_Q2_K, 0xdfc2b58ec2c54b09, {81, 83}}, {DTYPE_Q3_K, 0x1e391e8aa9fbfd89, {109}},
        {DTYPE_IQ4_NL, 0x70835799c6ef1a3a, {1}},    {DTYPE_MXFP4, 0x3092f906de0d3244, {0}},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum dtype dtype = cases[i].dtype;
        struct dtype_traits traits = dtype_traits(dtype);
        struct rng r = {(uint64_t)dtype};
        uint32_t n_blocks = 4096 / traits.block_elems;
        uint8_t *blocks = mem_array(n_blocks, traits.block_bytes);
        float *values = mem_array(4096, sizeof *values);
        for (uint32_t j = 0; j < n_blocks; j++) {
            uint8_t *p = blocks + (uint64_t)j * traits.block_bytes;
            for (uint32_t b = 0; b < traits.block_bytes; b++)
                p[b] = (uint8_t)rng_next(&r);
            for (uint32_t b = 0; b < 2 && cases[i].high[b]; b++)
                p[cases[i].high[b]] &= 0xbf;
        }
        assert_true(dequantize_row(dtype, blocks, 4096, values));
        uint64_t hash = 0xcbf29ce484222325;
        for (uint32_t b = 0; b < 4096 * sizeof *values; b++)
            hash = (hash ^ ((const uint8_t *)values)[b]) * 0x100000001b3;
        assert_int_equal(hash, cases[i].hash);
        mem_free(blocks);
        mem_free(values);
    }
}

/* Returns the beginning of block `i_block` of a panel. pack.h describes its content. */
static const uint8_t *panel_block(const struct matrix *m, uint32_t i_panel, uint32_t i_block)
{
    static const uint32_t bytes[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = 32 + 32 * 16,
        [DTYPE_Q4_0] = 32 + 4 * 64,
        [DTYPE_Q5_0] = 32 + 4 * 80,
        [DTYPE_Q4_K] = 64 + 8 * (32 + 4 * 64),
        [DTYPE_Q5_K] = 64 + 8 * (32 + 4 * 80),
        [DTYPE_Q6_K] = 32 + 16 * (16 + 2 * 96),
        [DTYPE_Q4_1] = 64 + 4 * 64,
        [DTYPE_Q5_1] = 64 + 4 * 80,
        [DTYPE_IQ4_NL] = 32 + 4 * 64,
        [DTYPE_Q2_K] = 64 + 16 * (16 + 2 * 32),
        [DTYPE_Q3_K] = 32 + 16 * (16 + 2 * 48),
        [DTYPE_INT2] = 48 + 4 * 32,
        [DTYPE_INT3] = 48 + 4 * 48,
        [DTYPE_INT4] = 48 + 4 * 64,
        [DTYPE_INT8] = 80 + 32 * 16,
        [DTYPE_FP8] = 64 + 32 * 16,
        [DTYPE_MXFP4] = 16 + 4 * 64,
    };
    uint32_t n_blocks = m->w.k / dtype_traits(m->w.dtype).block_elems;
    return (const uint8_t *)m->w.data +
           ((uint64_t)i_panel * n_blocks + i_block) * bytes[m->w.dtype];
}

static float half_at(const uint8_t *p, uint32_t i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, sizeof h);
    return f32_from_f16(h);
}

/* Returns code k < 8 of output j in the eight codes at p. */
static int code_at(enum dtype dtype, const uint8_t *p, uint32_t k, uint32_t j)
{
    int pair = p[k / 4 * 16 + j] >> (k % 4 * 2) & 3;
    if (dtype == DTYPE_Q2_K || dtype == DTYPE_INT2)
        return pair;
    if (dtype == DTYPE_Q3_K || dtype == DTYPE_INT3)
        return pair | (p[32 + j] >> k & 1) << 2;
    int code = p[k / 2 * 16 + j] >> (k % 2 * 4) & 15;
    if (dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K)
        code |= (p[64 + j] >> k & 1) << 4;
    if (dtype == DTYPE_Q6_K)
        code |= (p[64 + k / 4 * 16 + j] >> (k % 4 * 2) & 3) << 4;
    return code;
}

/* Returns the value of an OCP 8-bit float E4M3: sign, four exponent bits with bias 7, three
 * mantissa bits. */
static float e4m3_value(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float f = exponent ? ldexpf(8 + (float)mantissa, exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 0x80 ? -f : f;
}

/* Returns the value of an OCP microscaling E2M1: sign, two exponent bits with bias 1, one
 * mantissa bit. */
static float e2m1_value(int code)
{
    int exponent = code >> 1 & 3, mantissa = code & 1;
    float f = exponent ? ldexpf(2 + (float)mantissa, exponent - 2) : 0.5f * (float)mantissa;
    return code & 8 ? -f : f;
}

static float iq4_nl_value(int code)
{
    static const float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    return values[code];
}

static float bf16_at(const struct matrix *m, uint32_t i_panel, uint32_t k, uint32_t j)
{
    uint64_t flat = ((uint64_t)i_panel * m->w.k + k) * 16 + j;
    if (k + 1 < m->w.k || k % 2 == 1) /* the even number of a pair is the high half */
        flat = ((uint64_t)i_panel * m->w.k + k / 2 * 2) * 16 + 2 * j + !(k % 2);
    uint32_t bits = (uint32_t)((const uint16_t *)m->w.data)[flat] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns weight k of output j in the panel. */
static float packed_value(const struct matrix *m, uint32_t i_panel, uint32_t k, uint32_t j)
{
    enum dtype dtype = m->w.dtype;
    uint64_t flat = ((uint64_t)i_panel * m->w.k + k) * 16 + j;
    uint32_t bits;
    float f;
    const uint8_t *p, *group;
    switch (dtype) {
    case DTYPE_F32:
        return ((const float *)m->w.data)[flat];
    case DTYPE_F16:
        return half_at(m->w.data, (uint32_t)flat);
    case DTYPE_BF16:
        return bf16_at(m, i_panel, k, j);
    case DTYPE_Q8_0:
        p = panel_block(m, i_panel, k / 32);
        return half_at(p, j) * (float)(int8_t)p[32 + k % 32 * 16 + j];
    case DTYPE_Q4_0:
        p = panel_block(m, i_panel, k / 32);
        return half_at(p, j) * (float)(code_at(dtype, p + 32 + k % 32 / 8 * 64, k % 8, j) - 8);
    case DTYPE_Q5_0:
        p = panel_block(m, i_panel, k / 32);
        return half_at(p, j) * (float)(code_at(dtype, p + 32 + k % 32 / 8 * 80, k % 8, j) - 16);
    case DTYPE_Q6_K:
        p = panel_block(m, i_panel, k / 256);
        group = p + 32 + k % 256 / 16 * (16 + 2 * 96);
        return half_at(p, j) * (float)(int8_t)group[j] *
               (float)(code_at(dtype, group + 16 + k % 16 / 8 * 96, k % 8, j) - 32);
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        bits = dtype == DTYPE_Q4_1 ? 64 : 80;
        p = panel_block(m, i_panel, k / 32);
        f = half_at(p, j) * (float)code_at(dtype, p + 64 + k % 32 / 8 * bits, k % 8, j);
        return f + half_at(p + 32, j);
    case DTYPE_IQ4_NL:
        p = panel_block(m, i_panel, k / 32);
        return half_at(p, j) * iq4_nl_value(code_at(dtype, p + 32 + k % 32 / 8 * 64, k % 8, j));
    case DTYPE_Q2_K:
        p = panel_block(m, i_panel, k / 256);
        group = p + 64 + k % 256 / 16 * (16 + 2 * 32);
        f = half_at(p, j) * (float)(group[j] & 15) *
            (float)code_at(dtype, group + 16 + k % 16 / 8 * 32, k % 8, j);
        return f - half_at(p + 32, j) * (float)(group[j] >> 4);
    case DTYPE_Q3_K:
        p = panel_block(m, i_panel, k / 256);
        group = p + 32 + k % 256 / 16 * (16 + 2 * 48);
        return half_at(p, j) * (float)(int8_t)group[j] *
               (float)(code_at(dtype, group + 16 + k % 16 / 8 * 48, k % 8, j) - 4);
    case DTYPE_INT2:
    case DTYPE_INT3:
    case DTYPE_INT4:
        bits = dtype == DTYPE_INT2 ? 32 : dtype == DTYPE_INT3 ? 48 : 64;
        p = panel_block(m, i_panel, k / 32);
        return half_at(p, j) *
               (float)(code_at(dtype, p + 48 + k % 32 / 8 * bits, k % 8, j) - p[32 + j]);
    case DTYPE_INT8:
        p = panel_block(m, i_panel, k / 32);
        memcpy(&f, p + 4 * j, sizeof f);
        return f * (float)((int8_t)p[80 + k % 32 * 16 + j] - (int8_t)p[64 + j]);
    case DTYPE_FP8:
        p = panel_block(m, i_panel, k / 32);
        memcpy(&f, p + 4 * j, sizeof f);
        return f * e4m3_value(p[64 + k % 32 * 16 + j]);
    case DTYPE_MXFP4:
        p = panel_block(m, i_panel, k / 32);
        return ldexpf(e2m1_value(code_at(dtype, p + 16 + k % 32 / 8 * 64, k % 8, j)), p[j] - 127);
    default: /* default: Q4_K and Q5_K */
        bits = dtype == DTYPE_Q4_K ? 64 : 80;
        p = panel_block(m, i_panel, k / 256);
        group = p + 64 + k % 256 / 32 * (32 + 4 * bits);
        f = half_at(p, j) * (float)group[j] *
            (float)code_at(dtype, group + 32 + k % 32 / 8 * bits, k % 8, j);
        return f - half_at(p + 32, j) * (float)group[16 + j];
    }
}

static void test_panels(void **state)
{
    struct rng r = {7};
    for (uint32_t i = 0; i < N_PACKED_DTYPES; i++) {
        enum dtype dtype = packed_dtypes[i];
        bool plain = dtype_traits(dtype).block_elems == 1;
        uint32_t n = 37, k = plain ? 45 : 3 * dtype_traits(dtype).block_elems;
        struct matrix m = matrix_new(&r, dtype, n, k);
        float *row = mem_array(k, sizeof *row);
        for (uint32_t i_row = 0; i_row < 48; i_row++) {
            if (i_row < n)
                assert_true(
                    dequantize_row(dtype, m.rows.ptr + i_row * m.rows.stride_bytes, k, row));
            for (uint32_t j = 0; j < k; j++) {
                float got = packed_value(&m, i_row / 16, j, i_row % 16);
                float want = i_row < n ? row[j] : 0.0f;
                assert_true(got == want);
            }
        }
        mem_free(row);
        matrix_free(&m);
    }
}

static void test_bytes(void **state)
{
    static const struct {
        enum dtype dtype;
        uint32_t k;
        uint64_t n_bytes;
    } cases[] = {
        {DTYPE_F32, 5, 320},      {DTYPE_F16, 5, 160},
        {DTYPE_BF16, 1, 32},      {DTYPE_Q8_0, 640, 20 * 544},
        {DTYPE_Q8_0, 48, 0},      {DTYPE_Q4_0, 32, 288},
        {DTYPE_Q5_0, 64, 704},    {DTYPE_Q4_K, 256, 2368},
        {DTYPE_Q4_K, 128, 0},     {DTYPE_Q5_K, 512, 5760},
        {DTYPE_Q6_K, 256, 3360},  {DTYPE_Q4_1, 64, 640},
        {DTYPE_Q5_1, 32, 384},    {DTYPE_IQ4_NL, 32, 288},
        {DTYPE_Q2_K, 256, 1344},  {DTYPE_Q3_K, 256, 1824},
        {DTYPE_Q3_K, 128, 0},     {DTYPE_F64, 32, 0},
        {DTYPE_INT2, 32, 176},    {DTYPE_INT3, 32, 240},
        {DTYPE_INT4, 64, 608},    {DTYPE_INT8, 32, 592},
        {DTYPE_FP8, 32, 576},     {DTYPE_MXFP4, 32, 272},
        {(enum dtype)9999, 1, 0}, {DTYPE_Q8_0, UINT32_MAX - 31, (UINT32_MAX / 32) * 544ull},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pack_panel_bytes(cases[i].dtype, cases[i].k), cases[i].n_bytes);
    float out[32];
    uint8_t row[64] = {0};
    assert_false(dequantize_row(DTYPE_F64, row, 32, out));
    assert_false(dequantize_row(DTYPE_Q8_0, row, 16, out));
    assert_false(dequantize_row((enum dtype)9999, row, 16, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_panels),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
