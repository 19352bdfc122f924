#pragma once
/* Computes exp and tanh of 16 floats, with the vf of the vec/ISA.h that was included before.
 * Every ISA does the same fused operations in the same order, so AVX2 and AVX-512 give equal
 * bits.
 *
 * exp follows Cephes (Moshier, expf.c): x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 in two parts,
 * and a polynomial of degree 5 in r. The error is below 2 ulp
 * (tests/unit/kernels/cpu/row/row_test.c). vec.h has no comparisons, so results that must be
 * zero are multiplied by a step function. */
#include <stdint.h>

/* Returns exp(r) - 1 for the remainder r = x - n ln 2. The result has no cancellation near 0. */
static inline vf math_expm1_remainder(vf x, vf n)
{
    vf r = vf_fma(n, vf_set1(-0.693359375f), x);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    return vf_fma(vf_mul(r, r), p, r);
}

static inline vf math_exponent(vf x)
{
    return vf_round(vf_mul(x, vf_set1(1.44269504088896341f)));
}

/* Returns exp(x). The result is 0 for a NaN and for x <= -87, below which results would soon be
 * subnormal. For x above 88 it is exp(88). */
static inline vf math_exp(vf x)
{
    const vf low = vf_set1(-87.0f);
    /* a NaN becomes `low`, because vf_max treats NaN as maxps does (vec.h) */
    x = vf_min(vf_max(x, low), vf_set1(88.0f));
    vf n = math_exponent(x);
    vf y = vf_add(math_expm1_remainder(x, n), vf_set1(1.0f));
#ifdef __AVX512F__ /* this branch gives the same result in fewer instructions */
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_GT_OQ), y, n);
#else
    /* `step` is 0 at `low` and 1 from the next float on. */
    vf step = vf_mul(vf_sub(x, low), vf_set1(0x1p20f));
    return vf_mul(vf_mul(y, vf_pow2(n)), vf_min(step, vf_set1(1.0f)));
#endif
}

/* Returns tanh(x) = (e^2x - 1) / (e^2x - 1 + 2), with e^2x - 1 = 2^n (e^r - 1) + (2^n - 1). A
 * NaN stays NaN. */
static inline vf math_tanh(vf x)
{
    const vf low = vf_set1(-18.2f), high = vf_set1(18.2f); /* tanh(9.1) rounds to 1 */
    x = vf_add(x, x);
    vf n = math_exponent(vf_min(vf_max(x, low), high)); /* n is never NaN */
    x = vf_min(high, vf_max(low, x));                   /* the result is NaN if x is NaN */
    vf scale = vf_pow2(n);
    vf e = vf_fma(scale, math_expm1_remainder(x, n), vf_sub(scale, vf_set1(1.0f)));
    return vf_div(e, vf_add(e, vf_set1(2.0f)));
}

/* SiLU is x / (1 + exp(-x)). GELU in its tanh form is 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)),
 * which loses no precision when tanh(u) is close to -1. */
static inline vf math_silu(vf x)
{
    return vf_div(x, vf_add(vf_set1(1.0f), math_exp(vf_sub(vf_zero(), x))));
}
static inline vf math_gelu_tanh(vf x)
{
    const vf minus_2_sqrt_2_over_pi = vf_set1(-1.5957691216057308f);
    vf cube = vf_mul(vf_mul(x, x), x);
    vf u = vf_mul(minus_2_sqrt_2_over_pi, vf_fma(vf_set1(0.044715f), cube, x));
    return vf_div(x, vf_add(vf_set1(1.0f), math_exp(u)));
}
static inline vf math_softcap(vf x, float cap)
{
    return vf_mul(vf_set1(cap), math_tanh(vf_div(x, vf_set1(cap))));
}
