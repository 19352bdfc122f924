/* Tests the numbers, codes and scales that are written into the KV cache: all levels must write
 * the same bytes. */
#include "kernels/host/narrow.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/host/f16.h"
#include "kernels/kv_layout.h"

static const struct {
    enum cpu_isa needs;
    void (*kv_store)(void *, enum dtype, float *, const float *, uint32_t);
} sets[] = {
#define SET(upper, lower) {CPU_ISA_##upper, kv_store_##lower},
    CPU_LEVELS(SET)};
enum { N_SETS = sizeof sets / sizeof sets[0] };
static const enum dtype kv_dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
enum { N_DTYPES = sizeof kv_dtypes / sizeof *kv_dtypes };

static float uniform(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}

static void test_numbers(void **state)
{
    struct rng r = {5};
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (sets[k].needs > cpu_isa_best())
            continue;
        for (uint32_t dim = 1; dim <= 70; dim++) {
            float in[70], f32[71];
            uint16_t f16[71];
            for (uint32_t i = 0; i < dim; i++)
                in[i] = uniform(&r) * (i % 7 == 0 ? 1e5f : 3.0f);
            f32[dim] = 77.0f;
            f16[dim] = 0x1234;
            sets[k].kv_store(f32, DTYPE_F32, NULL, in, dim);
            sets[k].kv_store(f16, DTYPE_F16, NULL, in, dim);
            assert_memory_equal(f32, in, dim * sizeof(float));
            for (uint32_t i = 0; i < dim; i++)
                assert_int_equal(f16[i], f16_from_f32(in[i]));
            assert_true(f32[dim] == 77.0f && f16[dim] == 0x1234);
        }
    }
}

/* All levels must write the same bytes, and nothing behind these bytes, for any numbers. */
static void test_levels(void **state)
{
    static const float odd[] = {0.0f,   -0.0f, INFINITY,         -INFINITY, NAN,      1e-38f,
                                1e-42f, 3e38f, -0x1.fffffep127f, 0x1p-6f,   0x1.4p2f, 0x1.6p-8f,
                                126.5f, 440.0f};
    struct rng r = {6};
    for (uint32_t i_case = 0; i_case < 2000; i_case++) {
        uint32_t dim = 1 + (uint32_t)rng_below(&r, 70);
        enum dtype dtype = kv_dtypes[i_case % N_DTYPES];
        float in[70];
        uint8_t want[71 * 4];
        for (uint32_t i = 0; i < dim; i++)
            in[i] = rng_below(&r, 9) || i_case % 3 ? uniform(&r) : odd[rng_below(&r, 14)];
        for (uint32_t k = 0; k < N_SETS; k++) {
            if (sets[k].needs > cpu_isa_best())
                continue;
            _Alignas(16) uint8_t got[71 * 4];
            float scales[2] = {-1, 77.0f};
            memset(got, 0xa5, sizeof got);
            sets[k].kv_store(got, dtype, kv_has_scales(dtype) ? &scales[0] : NULL, in, dim);
            memcpy(got + dim * kv_elem_bytes(dtype), &scales[0], sizeof(float));
            assert_true(scales[1] == 77.0f);
            if (k == 0)
                memcpy(want, got, sizeof want);
            assert_memory_equal(got, want, sizeof want);
        }
    }
}

static double e4m3_value(uint8_t code)
{
    int e = code >> 3 & 15, m = code & 7;
    return (code & 0x80 ? -1 : 1) * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9));
}

static float store_first(enum dtype dtype, const float *in, uint32_t dim, uint8_t *code)
{
    uint8_t codes[16];
    float made = -1;
    kv_store_scalar(codes, dtype, &made, in, dim);
    *code = codes[0];
    return made;
}

static void test_codes(void **state)
{
    uint8_t code;
    for (uint32_t c = 0; c < 256; c++) {
        if ((c & 0x7f) == 0x7f) /* these codes are NaN, which is never written */
            continue;
        double x = e4m3_value((uint8_t)c);
        float in[2] = {(float)x, 448.0f};
        assert_true(store_first(DTYPE_F8_E4M3, in, 2, &code) == 1.0f);
        assert_int_equal(code, c);
        if ((c & 0x7f) == 0x7e)
            continue;
        /* A number half-way to the next code must get the even code. */
        in[0] = (float)(x + e4m3_value((uint8_t)(c + 1))) / 2;
        store_first(DTYPE_F8_E4M3, in, 2, &code);
        assert_int_equal(code, c % 2 ? c + 1 : c);
    }
    for (int i = -127; i <= 127; i++) {
        const float in[2] = {(float)i + (i < 127 ? 0.5f : 0.0f), 127.0f};
        assert_true(store_first(DTYPE_I8, in, 2, &code) == 1.0f);
        assert_int_equal((int8_t)code, i == 127 ? 127 : i % 2 ? i + 1 : i);
    }
}

static void test_scales(void **state)
{
    static const struct {
        float in[2], i8, e4m3;
        uint8_t i8_code, e4m3_code;
    } cases[] = {{{0, 0}, 0, 0, 0, 0},
                 {{-3.0f, 1.0f}, 3.0f / 127, 3.0f / 448, 0x81, 0xfe},
                 {{1e-40f, 0}, 0, 0, 0, 0}, /* the inverse of this scale would be infinite */
                 {{INFINITY, 5.0f}, 0x1.fffffep127f / 127, 0x1.fffffep127f / 448, 127, 0x7e}};
    uint8_t code;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(store_first(DTYPE_I8, cases[i].in, 2, &code) == cases[i].i8);
        assert_int_equal(code, cases[i].i8_code);
        assert_true(store_first(DTYPE_F8_E4M3, cases[i].in, 2, &code) == cases[i].e4m3);
        assert_int_equal(code, cases[i].e4m3_code);
    }
    const float nan_behind[2] = {1.0f, NAN};
    assert_true(isnan(store_first(DTYPE_I8, nan_behind, 2, &code)));
    assert_true(isnan(store_first(DTYPE_F8_E4M3, nan_behind, 2, &code)));
}

/* A stored bfloat16 must be the upper half of a float. */
static void test_bf16(void **state)
{
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82},
                 {0x3f808001, 0x3f81}, {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80},
                 {0x7f800001, 0x7fc0}, {0xffc00000, 0xffc0}, {0x00000001, 0x0000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(bf16_from_f32(narrow_float(cases[i].bits)), cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_levels), cmocka_unit_test(test_codes),
        cmocka_unit_test(test_scales),  cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
