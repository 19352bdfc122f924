/* Implements operators on one row, written once with the operations of vec.h. row.h explains how
 * an ISA file includes this header. Sums are computed lane by lane (lane l adds elements l, l +
 * 16, ...), then added in the tree of vf_sum. All other operators work element by element, so a
 * row may be cut at any multiple of 16. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/isa_names.h"
#include "kernels/cpu/row/row.h"
#include "kernels/cpu/vec/math_impl.h"
#include "kernels/host/narrow.h"

enum { LANES = 16, TOP_BLOCK = 1024, SUM_EXP_BLOCK = 4096 };

/* Loads the next 16 elements. If only n are left, it loads these n, with zeros behind them. */
static inline vf row_load(const float *p, uint32_t n)
{
    return n >= LANES ? vf_load(p) : vf_load_n(p, n);
}
static inline void row_store(float *p, vf v, uint32_t n)
{
    if (n >= LANES)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}
/* Loads like row_load, with -infinity behind the last element. */
static inline vf row_load_inf(const float *p, uint32_t n)
{
    if (n >= LANES)
        return vf_load(p);
    float padded[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        padded[i] = i < n ? p[i] : -INFINITY;
    return vf_load(padded);
}

float ISA_FN(row_sum_squares)(const float *x, uint32_t dim)
{
    vf sum = vf_zero();
    for (uint32_t i = 0; i < dim; i += LANES) {
        vf v = row_load(x + i, dim - i);
        sum = vf_fma(v, v, sum);
    }
    return vf_sum(sum);
}

void ISA_FN(row_norm)(float *out, const float *x, const float *w, uint32_t dim, float mean_square)
{
    vf inv = vf_set1(1.0f / sqrtf(mean_square));
    for (uint32_t i = 0; i < dim; i += LANES) {
        vf v = vf_mul(vf_mul(row_load(x + i, dim - i), inv), row_load(w + i, dim - i));
        row_store(out + i, v, dim - i);
    }
}

/* Splits 2n floats into the even and the odd ones; n <= 16. put_together() joins them again. */
static inline void take_apart(float *even, float *odd, const float *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        even[i] = from[2 * i];
        odd[i] = from[2 * i + 1];
    }
}
static inline void put_together(float *to, const float *even, const float *odd, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        to[2 * i] = even[i];
        to[2 * i + 1] = odd[i];
    }
}

/* Rotates n <= 16 pairs (x[i], y[i]). */
static inline void rotate(float *x, float *y, const float *cos_sin, uint32_t n)
{
    float c[LANES] = {0}, s[LANES] = {0};
    take_apart(c, s, cos_sin, n);
    vf vx = row_load(x, n), vy = row_load(y, n), vc = vf_load(c), vs = vf_load(s);
    row_store(x, vf_sub(vf_mul(vx, vc), vf_mul(vy, vs)), n);
    row_store(y, vf_add(vf_mul(vy, vc), vf_mul(vx, vs)), n);
}
/* Rotates n <= 16 pairs of neighbours. It is not plain C, because gcc 12 compiles a product of
 * complex numbers to a fused vfmaddsub even with contraction off. */
static inline void rotate_neighbours(float *x, const float *cos_sin, uint32_t n)
{
    float a[LANES], b[LANES];
    take_apart(a, b, x, n);
    rotate(a, b, cos_sin, n);
    put_together(x, a, b, n);
}

void ISA_FN(row_rope)(float *x, const float *cos_sin, uint32_t n_rot, bool interleaved)
{
    uint32_t half = n_rot / 2, i = 0;
    if (interleaved) {
        for (; i + LANES <= half; i += LANES)
            rotate_neighbours(x + 2 * i, cos_sin + 2 * i, LANES);
        if (i < half)
            rotate_neighbours(x + 2 * i, cos_sin + 2 * i, half - i);
        return;
    }
    for (; i + LANES <= half; i += LANES)
        rotate(x + i, x + i + half, cos_sin + 2 * i, LANES);
    if (i < half)
        rotate(x + i, x + i + half, cos_sin + 2 * i, half - i);
}

/* Computes the gate with x * sigmoid(1.702 x) = silu(1.702 x) / 1.702. */
static void gated_limited(float *out, const float *gate, const float *up, uint32_t dim, float limit)
{
    const vf high = vf_set1(limit), low = vf_set1(-limit), one = vf_set1(1.0f);
    const vf alpha = vf_set1(1.702f), inverse = vf_set1(1.0f / 1.702f);
    for (uint32_t i = 0; i < dim; i += LANES) {
        vf g = vf_min(row_load(gate + i, dim - i), high);
        vf u = vf_max(vf_min(row_load(up + i, dim - i), high), low);
        g = vf_mul(math_silu(vf_mul(g, alpha)), inverse);
        row_store(out + i, vf_mul(g, vf_add(u, one)), dim - i);
    }
}

void ISA_FN(row_gated)(float *out, const float *gate, const float *up, uint32_t dim,
                       enum activation act, float limit)
{
    if (act == ACT_SWIGLU_LIMITED) {
        gated_limited(out, gate, up, dim, limit);
        return;
    }
    if (act == ACT_SILU) {
        for (uint32_t i = 0; i < dim; i += LANES) {
            vf g = math_silu(row_load(gate + i, dim - i));
            row_store(out + i, vf_mul(g, row_load(up + i, dim - i)), dim - i);
        }
        return;
    }
    for (uint32_t i = 0; i < dim; i += LANES) {
        vf g = math_gelu_tanh(row_load(gate + i, dim - i));
        row_store(out + i, vf_mul(g, row_load(up + i, dim - i)), dim - i);
    }
}

void ISA_FN(row_add)(float *x, const float *y, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i += LANES)
        row_store(x + i, vf_add(row_load(x + i, dim - i), row_load(y + i, dim - i)), dim - i);
}

void ISA_FN(row_add_scaled)(float *x, const float *y, uint32_t dim, float share)
{
    const vf s = vf_set1(share);
    for (uint32_t i = 0; i < dim; i += LANES)
        row_store(x + i, vf_fma(row_load(y + i, dim - i), s, row_load(x + i, dim - i)), dim - i);
}

void ISA_FN(row_scale)(float *x, uint32_t dim, float share)
{
    const vf s = vf_set1(share);
    for (uint32_t i = 0; i < dim; i += LANES)
        row_store(x + i, vf_mul(row_load(x + i, dim - i), s), dim - i);
}

void ISA_FN(row_softcap)(float *x, uint32_t dim, float cap)
{
    for (uint32_t i = 0; i < dim; i += LANES)
        row_store(x + i, math_softcap(row_load(x + i, dim - i), cap), dim - i);
}

/* Returns the largest of n elements. A NaN counts as -infinity, because vf_max returns its
 * second operand for a NaN. */
static float block_max(const float *x, uint32_t n)
{
    vf best[2] = {vf_set1(-INFINITY), vf_set1(-INFINITY)};
    uint32_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        best[0] = vf_max(vf_load(x + i), best[0]);
        best[1] = vf_max(vf_load(x + i + LANES), best[1]);
    }
    for (; i < n; i += LANES)
        best[0] = vf_max(row_load_inf(x + i, n - i), best[0]);
    return vf_hmax(vf_max(best[0], best[1]));
}

/* Finds the maximum of each block with vectors, then searches only the best block element by
 * element. */
struct logits_top ISA_FN(row_logits_top)(const float *x, uint32_t dim)
{
    struct logits_top top = {0, -INFINITY, -INFINITY};
    uint32_t begin = 0;
    for (uint32_t i = 0; i < dim; i += TOP_BLOCK) {
        float m = block_max(x + i, dim - i < TOP_BLOCK ? dim - i : TOP_BLOCK);
        if (m > top.best) {
            top.second = top.best;
            top.best = m;
            begin = i;
        } else if (m > top.second) {
            top.second = m;
        }
    }
    if (top.best == -INFINITY)
        return top;
    bool found = false;
    for (uint32_t i = begin; i < dim && i < begin + TOP_BLOCK; i++) {
        if (!found && x[i] == top.best) {
            top.id = i;
            found = true;
        } else if (x[i] > top.second) {
            top.second = x[i];
        }
    }
    return top;
}

double ISA_FN(row_sum_exp)(const float *x, uint32_t dim, float shift)
{
    double total = 0;
    vf minus_shift = vf_set1(-shift);
    for (uint32_t begin = 0; begin < dim; begin += SUM_EXP_BLOCK) {
        uint32_t end = dim - begin < SUM_EXP_BLOCK ? dim : begin + SUM_EXP_BLOCK;
        vf sum = vf_zero();
        for (uint32_t i = begin; i < end; i += LANES)
            sum = vf_add(sum, math_exp(vf_add(row_load_inf(x + i, end - i), minus_shift)));
        float lanes[LANES];
        vf_store(lanes, sum);
        for (uint32_t l = 0; l < LANES; l++)
            total += (double)lanes[l];
    }
    return total;
}

void ISA_FN(row_round)(float *out, const float *x, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++) {
        const uint32_t bits = narrow_bits(x[i]), rounded = (uint32_t)bf16_from_f32(x[i]) << 16;
        out[i] = narrow_float(bits & 0x7f800000u ? rounded : bits & 0x80000000u);
    }
}
