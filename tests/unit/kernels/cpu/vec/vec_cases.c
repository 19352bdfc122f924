/* Tests operations of kernels/cpu/vec/vec.h against plain C in each lane. A test file first
 * includes one vec_*.h and then this file, so that each level runs the same cases. Invariants:
 * results have the bits that vec.h promises, and partial loads and stores touch only their
 * lanes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "kernels/cpu/vec/pairs_impl.h"
#include "kernels/cpu/vec/transpose_impl.h"
#include "kernels/host/f16.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
/* Compares the bits. NaNs count as equal, because vec.h does not promise their payload. */
static void assert_same(float got, float want)
{
    if (!isnan(got) || !isnan(want))
        assert_int_equal(bits_of(got), bits_of(want));
}

enum { N_SPECIAL = 12 };
static const float specials[N_SPECIAL] = {
    0.0f, -0.0f,   0.5f,       -0.5f,    1.5f,      -2.5f,
    2.5f, 0x1p23f, 8388607.5f, -0x1p24f, 0x1p-149f, 0x1.fffffep127f,
};
/* Fills the lanes with moderate numbers, and now and then with a special number. */
static void fill(struct rng *r, float *x)
{
    for (int i = 0; i < 16; i++) {
        uint64_t z = rng_next(r);
        float f = ldexpf((float)(int32_t)(z >> 32), (int)(z & 15) - 36);
        x[i] = z >> 8 & 7 ? f : specials[(z >> 12) % N_SPECIAL];
    }
}

typedef vf vf_op2(vf a, vf b);
static float ref_add(float a, float b)
{
    return a + b;
}
static float ref_sub(float a, float b)
{
    return a - b;
}
static float ref_mul(float a, float b)
{
    return a * b;
}
static float ref_div(float a, float b)
{
    return a / b;
}
static float ref_min(float a, float b)
{
    return a < b ? a : b;
}
static float ref_max(float a, float b)
{
    return a > b ? a : b;
}

static void test_two_operands(void **state)
{
    const struct {
        vf_op2 *op;
        float (*ref)(float a, float b);
    } cases[] = {{vf_add, ref_add}, {vf_sub, ref_sub}, {vf_mul, ref_mul},
                 {vf_div, ref_div}, {vf_min, ref_min}, {vf_max, ref_max}};
    struct rng r = {1};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int n = 0; n < 500; n++) {
            float a[16], b[16], got[16];
            fill(&r, a);
            fill(&r, b);
            vf_store(got, cases[i].op(vf_load(a), vf_load(b)));
            for (int l = 0; l < 16; l++)
                assert_same(got[l], cases[i].ref(a[l], b[l]));
        }
    }
}

static void test_fma(void **state)
{
    struct rng r = {2};
    bool rounds_twice = false;
    for (int n = 0; n < 500; n++) {
        float a[16], b[16], c[16], got[16];
        fill(&r, a);
        fill(&r, b);
        fill(&r, c);
        vf_store(got, vf_fma(vf_load(a), vf_load(b), vf_load(c)));
        for (int l = 0; l < 16; l++) {
            volatile float product = a[l] * b[l];
            float sum = product + c[l];
            assert_same(got[l], FUSED ? fmaf(a[l], b[l], c[l]) : sum);
            rounds_twice |= sum != fmaf(a[l], b[l], c[l]);
        }
    }
    assert_true(rounds_twice);
}

static void test_one_operand(void **state)
{
    struct rng r = {3};
    for (int n = 0; n < 500; n++) {
        float a[16], root[16], near[16], two[16], e[16];
        fill(&r, a);
        for (int l = 0; l < 16; l++)
            e[l] = (float)((int)rng_below(&r, 254) - 126);
        vf_store(root, vf_sqrt(vf_load(a)));
        vf_store(near, vf_round(vf_load(a)));
        vf_store(two, vf_pow2(vf_load(e)));
        for (int l = 0; l < 16; l++) {
            assert_same(root[l], sqrtf(a[l]));
            assert_same(near[l], rintf(a[l]));
            assert_same(two[l], ldexpf(1.0f, (int)e[l]));
        }
    }
}

static void test_load_store(void **state)
{
    float x[34], y[34];
    for (int i = 0; i < 34; i++)
        x[i] = (float)(i + 1);
    for (uint32_t n = 0; n < 16; n++) {
        for (int i = 0; i < 34; i++)
            y[i] = -1;
        vf_store(y + 1, vf_load_n(x + 3, n)); /* both addresses are unaligned */
        for (uint32_t i = 0; i < 16; i++)
            assert_same(y[1 + i], i < n ? x[3 + i] : 0.0f);
        assert_same(y[0], -1);
        assert_same(y[17], -1);
        vf_store_n(y + 17, vf_set1(7), n);
        for (uint32_t i = 0; i < 17; i++)
            assert_same(y[17 + i], i < n ? 7.0f : -1.0f);
    }
    vf_store(y, vf_zero());
    for (int i = 0; i < 16; i++)
        assert_same(y[i], 0.0f);
}

static void test_sums(void **state)
{
    struct rng r = {4};
    vf sixteen[16];
    float one_by_one[16], together[16];
    for (int n = 0; n < 500; n++) {
        float a[16], s[16], m = -INFINITY;
        fill(&r, a);
        memcpy(s, a, sizeof s);
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++)
                s[i] += s[i + half];
        for (int i = 0; i < 16; i++)
            m = a[i] > m ? a[i] : m;
        assert_same(vf_sum(vf_load(a)), s[0]);
        assert_true(vf_hmax(vf_load(a)) == m);
        sixteen[n % 16] = vf_load(a);
        one_by_one[n % 16] = s[0];
        if (n % 16 < 15)
            continue;
        vf_store(together, vf_sum16(sixteen));
        for (int i = 0; i < 16; i++)
            assert_same(together[i], one_by_one[i]);
    }
}

static void test_transpose(void **state)
{
    vf v[16];
    for (int i = 0; i < 16; i++) {
        float row[16];
        for (int k = 0; k < 16; k++)
            row[k] = (float)(100 * i + k);
        v[i] = vf_load(row);
    }
    vf_transpose16(v);
    for (int i = 0; i < 16; i++) {
        float row[16];
        vf_store(row, v[i]);
        for (int k = 0; k < 16; k++)
            assert_same(row[k], (float)(100 * k + i));
    }
}

/* Checks each float16, NaNs bit for bit, and each bfloat16. */
static void test_from_16_bits(void **state)
{
    for (uint32_t i = 0; i < 65536; i += 16) {
        uint16_t h[16];
        uint16_t pairs[32];
        float f[16], b[16], high[16], low[16];
        vf w[2];
        for (uint32_t l = 0; l < 16; l++)
            h[l] = (uint16_t)(i + l);
        vf_store(f, vf_load_f16(h));
        vf_store(b, vf_load_bf16(h));
        for (int l = 0; l < 16; l++) {
            pairs[2 * l] = (uint16_t)(h[l] ^ 0x5aa5);
            pairs[2 * l + 1] = h[l];
        }
        vf_load_pairs(pairs, w);
        vf_store(high, w[0]);
        vf_store(low, w[1]);
        for (uint32_t l = 0; l < 16; l++) {
            assert_int_equal(bits_of(f[l]), bits_of(f32_from_f16(h[l])));
            assert_int_equal(bits_of(b[l]), (uint32_t)h[l] << 16);
            assert_int_equal(bits_of(high[l]), (uint32_t)h[l] << 16);
            assert_int_equal(bits_of(low[l]), (uint32_t)(h[l] ^ 0x5aa5) << 16);
            double value = ldexp(1024 * !!(h[l] & 0x7c00) + (h[l] & 0x3ff),
                                 (h[l] >> 10 & 31) - 25 + !(h[l] & 0x7c00));
            if ((h[l] & 0x7c00) != 0x7c00) /* other numbers follow the formula of the standard */
                assert_true((double)f[l] == (h[l] & 0x8000 ? -value : value));
        }
    }
}

static void test_to_f16(void **state)
{
    static const struct {
        uint32_t f;
        uint16_t h;
    } cases[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3c00}, {0x477fe000, 0x7bff},
        {0x477fefff, 0x7bff}, {0x477ff000, 0x7bff}, {0x7f800000, 0x7bff}, {0xff800000, 0xfbff},
        {0x7fc00000, 0x7e00}, {0xff800001, 0xfe00}, {0x7fffe000, 0x7fff}, {0x33000000, 0x0000},
        {0x33000001, 0x0001}, {0x33c00000, 0x0002}, {0x387fffff, 0x0400}, {0x3f801000, 0x3c00},
        {0x3f801001, 0x3c01}, {0x3f803000, 0x3c02}, {0x00000001, 0x0000}, {0xb8800000, 0x8400},
    };
    uint16_t got[16];
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vf_store_f16(got, vf_set1(from_bits(cases[i].f)));
        for (int l = 0; l < 16; l++)
            assert_int_equal(got[l], cases[i].h);
    }
    /* the loop has numbers of all exponents, compared with f16.h */
    for (uint64_t i = 0; i < 1ull << 32; i += 16 * 4099) {
        float a[16];
        for (uint32_t l = 0; l < 16; l++)
            a[l] = from_bits((uint32_t)i + l * 4099);
        vf_store_f16(got, vf_load(a));
        for (int l = 0; l < 16; l++)
            assert_int_equal(got[l], f16_from_f32(a[l]));
    }
}

/* Checks each code. The NaN codes 0x7f and 0xff are converted like ordinary codes. */
static void test_from_e4m3(void **state)
{
    for (int first = 0; first < 256; first += 16) {
        uint8_t codes[16];
        float got[16];
        for (int l = 0; l < 16; l++)
            codes[l] = (uint8_t)(first + l);
        vf_store(got, vf_from_e4m3(vb_load(codes)));
        for (int l = 0; l < 16; l++) {
            int e = codes[l] >> 3 & 15, m = codes[l] & 7;
            float want = ldexpf((float)(e ? 8 + m : m), e ? e - 10 : -9);
            assert_same(got[l], codes[l] & 0x80 ? -want : want);
        }
    }
}

static void test_bytes(void **state)
{
    uint8_t bytes[17];
    for (int base = 0; base < 256; base++) {
        for (int i = 0; i < 17; i++)
            bytes[i] = (uint8_t)(base + 13 * i);
        float u[16], s[16], nibble[16];
        vb b = vb_load(bytes + 1);
        vf_store(u, vf_from_u8(b));
        vf_store(s, vf_from_i8(b));
        vf_store(nibble, vf_from_u8((b >> 4) | (b << 4 & 0x30)));
        for (int i = 0; i < 16; i++) {
            assert_same(u[i], (float)bytes[i + 1]);
            assert_same(s[i], (float)(int8_t)bytes[i + 1]);
            assert_same(nibble[i], (float)(bytes[i + 1] >> 4 | (bytes[i + 1] & 3) << 4));
        }
    }
}

static int run_cases(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_operands), cmocka_unit_test(test_fma),
        cmocka_unit_test(test_one_operand),  cmocka_unit_test(test_load_store),
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_from_16_bits),
        cmocka_unit_test(test_to_f16),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_from_e4m3),    cmocka_unit_test(test_transpose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
