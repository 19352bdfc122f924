/* Compares the quantisation of blocks with the rule applied to one number at a time. Numbers
 * have all sizes, also beyond float16, and some are zero. */
#include "worker/weights/quantise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/host/f16.h"

enum { K = 32, N = 4096 };

/* Returns the number farthest from zero, or the first of several that are equally far. */
static float farthest(const float *x)
{
    float most = 0;
    for (uint32_t i = 0; i < K; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

static int want_code(float x, float d, double low, double high)
{
    double q = d != 0 ? nearbyint((double)x / (double)d) : 0;
    return (int)(q < low ? low : q > high ? high : q);
}

static void check(const float *x, enum dtype dtype, const uint8_t *got)
{
    const bool bytes = dtype == DTYPE_Q8_0;
    const uint16_t half = f16_from_f32(bytes ? fabsf(farthest(x)) / 127 : farthest(x) / -8);
    const float d = f32_from_f16(half);
    assert_memory_equal(got, &half, sizeof half);
    for (uint32_t i = 0; i < K; i++) {
        if (bytes)
            assert_int_equal((int8_t)got[2 + i], want_code(x[i], d, -127, 127));
        else
            assert_int_equal((got[2 + i % 16] >> i / 16 * 4 & 15) - 8, want_code(x[i], d, -8, 7));
    }
}

static void test_blocks(void **state)
{
    static const struct {
        enum dtype dtype;
        uint32_t block_bytes;
    } cases[] = {{DTYPE_Q8_0, 34}, {DTYPE_Q4_0, 18}};
    struct rng r = {5};
    float *x = mem_array(N * K, sizeof *x);
    uint8_t *to = mem_array(N, 34);
    for (uint32_t i = 0; i < N * K; i++) {
        const int exponent = (int)(i / K % 256) - 127 - (int)rng_below(&r, 4);
        x[i] = ldexpf((float)rng_below(&r, 1u << 16) - 0x1p15f, exponent - 15);
        if (rng_below(&r, 8) == 0 || i / K % 64 == 0)
            x[i] = i % 2 ? -0.0f : 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tensor t = {
            .dtype = DTYPE_F32, .n_dims = 2, .data = (uint8_t *)x, .n_bytes = N * K * sizeof *x};
        const struct source s = {.kind = SOURCE_QUANTISED, .dtype = cases[i].dtype, .values = &t};
        const struct op_weight w = {.n = N, .k = K, .n_len = N, .k_len = K};
        quantise_rows(&s, &w, to);
        for (uint32_t n = 0; n < N; n++)
            check(x + (size_t)n * K, cases[i].dtype, to + (size_t)n * cases[i].block_bytes);
    }
    mem_free(x);
    mem_free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
