#pragma once
/* Implements the operations of kernels/cpu/vec/vec.h in portable C: four vectors of 16 bytes,
 * which compilers map to the target's vectors or split. This level is the specification of the
 * other levels. vf_fma rounds twice here, or once with VEC_SCALAR_FMA. Conversions to and from
 * 16 bits give the bits of F16C. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/host/f16.h"

typedef float vec_f4 __attribute__((vector_size(16)));
typedef int32_t vec_i4 __attribute__((vector_size(16)));
typedef uint8_t vb __attribute__((vector_size(16)));
typedef struct {
    vec_f4 q[4];
} vf;

static inline vf vf_load(const float *p)
{
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}
static inline vf vf_zero(void)
{
    return (vf){0};
}
static inline vf vf_set1(float a)
{
    vec_f4 v = {a, a, a, a};
    return (vf){{v, v, v, v}};
}
static inline vf vf_load_n(const float *p, uint32_t n)
{
    vf r = vf_zero();
    memcpy(&r, p, n * sizeof *p);
    return r;
}
static inline void vf_store_n(float *p, vf a, uint32_t n)
{
    memcpy(p, &a, n * sizeof *p);
}

#define VEC_BINARY(name, op)                                                                       \
    static inline vf name(vf a, vf b)                                                              \
    {                                                                                              \
        for (int i = 0; i < 4; i++)                                                                \
            a.q[i] = a.q[i] op b.q[i];                                                             \
        return a;                                                                                  \
    }
VEC_BINARY(vf_add, +)
VEC_BINARY(vf_sub, -)
VEC_BINARY(vf_mul, *)
VEC_BINARY(vf_div, /)
static inline vec_f4 vec_select(vec_i4 mask, vec_f4 a, vec_f4 b)
{
    return (vec_f4)((mask & (vec_i4)a) | (~mask & (vec_i4)b));
}
static inline vf vf_min(vf a, vf b)
{
    for (int i = 0; i < 4; i++)
        a.q[i] = vec_select(a.q[i] < b.q[i], a.q[i], b.q[i]);
    return a;
}
static inline vf vf_max(vf a, vf b)
{
    for (int i = 0; i < 4; i++)
        a.q[i] = vec_select(a.q[i] > b.q[i], a.q[i], b.q[i]);
    return a;
}
static inline vf vf_fma(vf a, vf b, vf c)
{
#ifdef VEC_SCALAR_FMA
    for (int i = 0; i < 16; i++)
        c.q[i / 4][i % 4] = fmaf(a.q[i / 4][i % 4], b.q[i / 4][i % 4], c.q[i / 4][i % 4]);
    return c;
#else
    return vf_add(vf_mul(a, b), c);
#endif
}
static inline vf vf_sqrt(vf a)
{
    for (int i = 0; i < 16; i++)
        a.q[i / 4][i % 4] = sqrtf(a.q[i / 4][i % 4]);
    return a;
}
/* Rounds to the nearest integer, ties to even. Adding 2^23 to a number below 2^23 leaves no bits
 * for a fraction. The sign is handled separately, for -0. */
static inline vf vf_round(vf a)
{
    const vec_f4 big = {0x1p23f, 0x1p23f, 0x1p23f, 0x1p23f};
    for (int i = 0; i < 4; i++) {
        vec_i4 sign = (vec_i4)a.q[i] & INT32_MIN;
        vec_f4 abs = (vec_f4)((vec_i4)a.q[i] & INT32_MAX);
        vec_f4 rounded = (vec_f4)((vec_i4)((abs + big) - big) | sign);
        a.q[i] = vec_select(abs < big, rounded, a.q[i]);
    }
    return a;
}
static inline vf vf_pow2(vf a)
{
    for (int i = 0; i < 4; i++)
        a.q[i] = (vec_f4)((__builtin_convertvector(a.q[i], vec_i4) + 127) << 23);
    return a;
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    uint32_t bits[16];
    for (int i = 0; i < 16; i++)
        bits[i] = (uint32_t)p[i] << 16;
    vf r;
    memcpy(&r, bits, sizeof r);
    return r;
}
static inline vf vf_load_f16(const uint16_t *p)
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = f32_from_f16(p[i]);
    return vf_load(f);
}
static inline void vf_store_f16(uint16_t *p, vf a)
{
    for (int i = 0; i < 16; i++)
        p[i] = f16_from_f32(a.q[i / 4][i % 4]);
}

static inline vb vb_load(const uint8_t *p)
{
    vb r;
    memcpy(&r, p, sizeof r);
    return r;
}
static inline vf vf_from_u8(vb a)
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = (float)a[i];
    return vf_load(f);
}
static inline vf vf_from_i8(vb a)
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = (float)(int8_t)a[i];
    return vf_load(f);
}
static inline vb vb_lookup(vb table, vb i)
{
    for (int l = 0; l < 16; l++)
        i[l] = table[i[l] & 15];
    return i;
}
/* interprets the bits as floats whose exponent is 120 too small */
static inline vf vf_from_e4m3(vb a)
{
    uint32_t bits[16];
    vf r;
    for (int i = 0; i < 16; i++)
        bits[i] = (a[i] & 0x80u) << 24 | (a[i] & 0x7fu) << 20;
    memcpy(&r, bits, sizeof r);
    return vf_mul(r, vf_set1(0x1p120f));
}
static inline vf vf_from_e8m0(vb a)
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = ldexpf(1.0f, a[i] - 127);
    return vf_load(f);
}

static inline float vf_sum(vf a)
{
    vec_f4 s = (a.q[0] + a.q[2]) + (a.q[1] + a.q[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}
static inline vf vf_sum16(const vf v[16])
{
    float sums[16];
    for (int i = 0; i < 16; i++)
        sums[i] = vf_sum(v[i]);
    return vf_load(sums);
}
static inline float vf_hmax(vf a)
{
    vec_f4 m0 = vec_select(a.q[0] > a.q[2], a.q[0], a.q[2]);
    vec_f4 m1 = vec_select(a.q[1] > a.q[3], a.q[1], a.q[3]);
    vec_f4 m = vec_select(m0 > m1, m0, m1);
    float x = m[0] > m[2] ? m[0] : m[2], y = m[1] > m[3] ? m[1] : m[3];
    return x > y ? x : y;
}
