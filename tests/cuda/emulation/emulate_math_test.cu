/* Tests the narrow formats of the emulation against their definitions. It checks conversions of
 * all their values and of numbers between two values, and arithmetic against exact sums. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tests/cuda/emulation/emulate_check.h"

namespace
{
uint64_t random_state = 88172645463325252ull;
uint32_t next_random()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20);
}

/* `format` is a format by its definition: sign, exponent, fraction. */
struct format {
    int n_exponent, n_fraction, bias;
    bool has_infinity;
};
const format BF16 = {8, 7, 127, true}, HALF = {5, 10, 15, true}, E4M3 = {4, 3, 7, false};

double value_of(const format &f, unsigned bits)
{
    const int n = f.n_exponent + f.n_fraction;
    const unsigned exponent = (bits & ((1u << n) - 1)) >> f.n_fraction;
    const unsigned fraction = bits & ((1u << f.n_fraction) - 1);
    const double size = exponent ? ldexp((double)((1u << f.n_fraction) + fraction),
                                         (int)exponent - f.bias - f.n_fraction)
                                 : ldexp((double)fraction, 1 - f.bias - f.n_fraction);
    return bits >> n & 1 ? -size : size;
}

unsigned largest(const format &f) /* returns the largest finite code */
{
    const unsigned ones = (1u << (f.n_exponent + f.n_fraction)) - 1;
    return f.has_infinity ? ones - (1u << f.n_fraction) : ones - 1;
}

/* Every value must convert back to itself. A number between two neighbours must convert to the
 * nearer neighbour, and a number midway to the even neighbour. */
void test_conversion(const format &f, float (*from)(unsigned), unsigned (*to)(float))
{
    const unsigned sign = 1u << (f.n_exponent + f.n_fraction);
    for (unsigned bits = 0; bits <= largest(f); bits++) {
        const float v = (float)value_of(f, bits);
        CHECK(from(bits) == v && from(bits | sign) == -v);
        CHECK(to(v) == bits && to(-v) == (bits | sign));
        if (bits == largest(f))
            continue;
        const float next = (float)value_of(f, bits + 1), middle = v + (next - v) / 2;
        if ((double)middle * 2 != (double)v + (double)next)
            continue; /* no float is between the two values */
        CHECK(to(middle) == bits + (bits & 1));
        CHECK(to(nextafterf(middle, v)) ==
              (nextafterf(middle, v) >= middle ? bits + (bits & 1) : bits));
        CHECK(to(nextafterf(middle, next)) == bits + 1);
    }
}

void test_conversions()
{
    test_conversion(
        BF16, [](unsigned b) { return __bfloat162float(__ushort_as_bfloat16((uint16_t)b)); },
        [](float v) -> unsigned { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); });
    test_conversion(
        HALF, [](unsigned b) { return __half2float(__ushort_as_half((uint16_t)b)); },
        [](float v) -> unsigned { return __half_as_ushort(__float2half_rn(v)); });
    test_conversion(
        E4M3,
        [](unsigned b) {
            return __half2float(__half(__nv_cvt_fp8_to_halfraw((uint8_t)b, __NV_E4M3)));
        },
        [](float v) -> unsigned { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); });
    CHECK(__half_as_ushort(__float2half_rn(65519.996f)) == 0x7bff);
    CHECK(__half_as_ushort(__float2half_rn(65520.0f)) == 0x7c00);
    CHECK(__half_as_ushort(__float2half_rn(-INFINITY)) == 0xfc00);
    CHECK(__half_as_ushort(__float2half_rn(NAN)) == 0x7fff);
    CHECK(isinf(__half2float(__ushort_as_half(0x7c00))) &&
          isnan(__half2float(__ushort_as_half(0x7c01))));
    CHECK(__bfloat16_as_ushort(__float2bfloat16_rn(3.4e38f)) == 0x7f80);
    CHECK(__bfloat16_as_ushort(__float2bfloat16_rn(-NAN)) == 0x7fff);
    CHECK(__nv_cvt_float_to_fp8(1e9f, __NV_SATFINITE, __NV_E4M3) == 0x7e);
    CHECK(__nv_cvt_float_to_fp8(-INFINITY, __NV_SATFINITE, __NV_E4M3) == 0xfe);
    CHECK(__nv_cvt_float_to_fp8(NAN, __NV_SATFINITE, __NV_E4M3) == 0x7f);
    CHECK(isnan(__half2float(__half(__nv_cvt_fp8_to_halfraw(0x7f, __NV_E4M3)))));
    CHECK(__nv_cvt_float2_to_fp8x2(make_float2(1.0f, -2.0f), __NV_SATFINITE, __NV_E4M3) == 0xc038);
}

/* Returns v rounded to a format, through long double. A long double holds every sum and product
 * of these values exactly if their exponents are as near as next_value makes them. */
double rounded(const format &f, long double v)
{
    const int exponent = v == 0 ? 0 : ilogbl(v),
              unit = (exponent < 1 - f.bias ? 1 - f.bias : exponent) - f.n_fraction;
    return (double)ldexpl(rintl(ldexpl(v, -unit)), unit); /* rintl rounds to even */
}

unsigned next_value(const format &f)
{
    const unsigned exponent = (unsigned)f.bias - 3 + next_random() % 7;
    return (next_random() % 2) << (f.n_exponent + f.n_fraction) | exponent << f.n_fraction |
           (next_random() & ((1u << f.n_fraction) - 1));
}

template <class T> void check_arithmetic(const format &f, T (*of)(unsigned), unsigned (*bits)(T))
{
    for (unsigned i = 0; i < 200000; i++) {
        unsigned b[3] = {next_value(f), next_value(f), next_value(f)};
        /* every fourth sum nearly cancels, or is near the middle of two values */
        if (i % 4 == 0) {
            b[2] = bits(of(b[0]) * of(b[1]) * (i % 8 ? -1.0f : 256.0f));
        }
        const long double x = (long double)value_of(f, b[0]), y = (long double)value_of(f, b[1]);
        const long double z = (long double)value_of(f, b[2]);
        CHECK(value_of(f, bits(__hadd(of(b[0]), of(b[1])))) == rounded(f, x + y));
        CHECK(value_of(f, bits(__hsub(of(b[0]), of(b[1])))) == rounded(f, x - y));
        CHECK(value_of(f, bits(__hmul(of(b[0]), of(b[1])))) == rounded(f, x * y));
        CHECK(value_of(f, bits(__hfma(of(b[0]), of(b[1]), of(b[2])))) == rounded(f, x * y + z));
    }
}

void test_arithmetic()
{
    check_arithmetic<__nv_bfloat16>(
        BF16, [](unsigned b) { return __ushort_as_bfloat16((uint16_t)b); },
        [](__nv_bfloat16 v) -> unsigned { return __bfloat16_as_ushort(v); });
    check_arithmetic<__half>(
        HALF, [](unsigned b) { return __ushort_as_half((uint16_t)b); },
        [](__half v) -> unsigned { return __half_as_ushort(v); });
    /* 1 + 2^-8 + 2^-16 rounds up. 1 + 2^-8, rounded from float, would have gone to the even
     * value 1. */
    const __nv_bfloat16 tiny = __float2bfloat16_rn(0x1p-17f), one = __float2bfloat16_rn(1.0f);
    const __nv_bfloat16 above = __float2bfloat16_rn(1.0f + 0x1p-7f);
    CHECK(__bfloat162float(__hfma(__float2bfloat16_rn(0x1p-8f), above, one)) == 1.0f + 0x1p-7f);
    CHECK(__bfloat162float(__hfma(__float2bfloat16_rn(0x1p-8f), one, one)) == 1.0f);
    CHECK(__bfloat162float(__hfma(tiny, tiny, above)) == 1.0f + 0x1p-7f);
    const __nv_bfloat162 two =
        __hfma2(__floats2bfloat162_rn(2.0f, 3.0f), __float2bfloat162_rn(4.0f),
                __floats2bfloat162_rn(-1.0f, 1.0f));
    CHECK(__low2float(two) == 7.0f && __high2float(two) == 13.0f);
}

void test_bits()
{
    CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u);
    CHECK(__byte_perm(0x33228100u, 0, 0x0098u) == 0x0000ff00u);
    CHECK(__brev(1) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u);
    CHECK(__popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(0) == 0 &&
          __ffs(8) == 4);
    CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3 &&
          __funnelshift_r(0x80000000u, 1u, 4) == 0x18000000u);
    CHECK(__umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu && __mulhi(-1, 1) == -1);
    CHECK(__dp4a((int)0xff02ff02u, 0x01010101, 5) == 7);
    CHECK(__float2int_rn(2.5f) == 2 && __float2int_rn(3e9f) == INT32_MAX &&
          __float2int_rn(NAN) == 0);
    CHECK(__float2uint_rz(-1.0f) == 0 && __float2int_rd(-1.5f) == -2);
    CHECK(max(3u, -1) == 0xffffffffu && min(-1, 2) == -1 && max(1.0f, NAN) == 1.0f);
}
} // namespace

int main()
{
    checks_begin("emulate_math_test.cu");
    test_conversions();
    test_arithmetic();
    test_bits();
    return checks_end();
}
