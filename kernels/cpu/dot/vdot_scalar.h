#pragma once
/* Implements codes of 16 outputs by 4 inputs as one value, vq, and 16 sums, vi, in portable C.
 * This header is the specification of the other vdot_*.h files. It is included after
 * vec/scalar.h.
 *
 *   vq_load(p)                  64 bytes, [output][4]
 *   vq_and(a, mask)  vq_high(a) the bits of mask; the high half of each byte
 *   vq_or_bits(a, b, from, mask)  a with the bits of mask of b, moved from bit `from` to bit 4
 *   vi_dot(bits, n, w, x, neg)  exact sum over n * 4 inputs of (q - offset) * x, for codes of
 *                               `bits` bits; neg is the offset's share of the sum
 *   vi_to_f(vi)                 sums as floats
 *   vdot_largest(x)             largest magnitude of 32 numbers; a NaN counts as the largest
 *   vdot_round(x, factor, to, half)  x * factor of 32 numbers, rounded to the nearest even
 *                               integer; the results fit a byte; half: sums of both halves */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint8_t b[64];
} vq;
typedef struct {
    int32_t i[16];
} vi;

static inline vq vq_load(const uint8_t *p)
{
    vq r;
    memcpy(&r, p, sizeof r);
    return r;
}
static __attribute__((noinline)) vq vq_and(vq a, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.b[i] &= mask;
    return a;
}
static __attribute__((noinline)) vq vq_high(vq a)
{
    for (int i = 0; i < 64; i++)
        a.b[i] >>= 4;
    return a;
}
static __attribute__((noinline)) vq vq_or_bits(vq a, vq b, uint32_t from, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.b[i] |= (uint8_t)((b.b[i] >> from & (mask >> 4)) << 4);
    return a;
}
static __attribute__((noinline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w, const int8_t *x,
                                           int32_t neg)
{
    vi r;
    (void)bits;
    for (int o = 0; o < 16; o++) {
        r.i[o] = neg;
        for (uint32_t i = 0; i < n; i++)
            for (int k = 0; k < 4; k++)
                r.i[o] += w[i].b[4 * o + k] * x[4 * i + k];
    }
    return r;
}
static inline vf vi_to_f(vi a)
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = (float)a.i[i];
    return vf_load(f);
}

/* Compares the bits as integers: magnitudes have the order of their bits, with NaN last. */
static inline float vdot_largest(const float *x)
{
    uint32_t largest = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float f;
    memcpy(&f, &largest, sizeof f);
    return f;
}
static inline void vdot_round(const float *x, float factor, int8_t *to, int32_t half[2])
{
    half[0] = half[1] = 0;
    for (int i = 0; i < 32; i++) {
        to[i] = (int8_t)rintf(x[i] * factor);
        half[i / 16] += to[i];
    }
}
