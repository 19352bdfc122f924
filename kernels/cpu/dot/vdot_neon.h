#pragma once
/* Implements the operations of kernels/cpu/dot/vdot_scalar.h with four registers of NEON. This
 * header is included after vec/neon.h. The operations use the dot products of ARMv8.2 (dotprod)
 * and those of unsigned codes (i8mm) if the file is compiled for them. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint8x16_t a, b, c, d; /* a: outputs 0..3; b: 4..7; c: 8..11; d: 12..15 */
} vq;
typedef struct {
    int32x4_t a, b, c, d;
} vi;

static inline vq vq_load(const uint8_t *p)
{
    return (vq){vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
static inline vq vq_and(vq x, uint8_t mask)
{
    const uint8x16_t m = vdupq_n_u8(mask);
    return (vq){vandq_u8(x.a, m), vandq_u8(x.b, m), vandq_u8(x.c, m), vandq_u8(x.d, m)};
}
static inline vq vq_high(vq x)
{
    return (vq){vshrq_n_u8(x.a, 4), vshrq_n_u8(x.b, 4), vshrq_n_u8(x.c, 4), vshrq_n_u8(x.d, 4)};
}
static inline __attribute__((always_inline)) uint8x16_t vdot_or(uint8x16_t x, uint8x16_t y,
                                                                uint32_t from, uint8_t mask)
{
    const uint8x16_t moved = from < 4 ? y << (4 - from) : y >> (from - 4);
    return vorrq_u8(x, vandq_u8(moved, vdupq_n_u8(mask)));
}
static inline __attribute__((always_inline)) vq vq_or_bits(vq x, vq y, uint32_t from, uint8_t mask)
{
    return (vq){vdot_or(x.a, y.a, from, mask), vdot_or(x.b, y.b, from, mask),
                vdot_or(x.c, y.c, from, mask), vdot_or(x.d, y.d, from, mask)};
}

/* Returns codes as signed numbers: 128 is subtracted from codes of eight bits. */
static inline __attribute__((always_inline)) int8x16_t vdot_signed(uint32_t bits, uint8x16_t w)
{
    return vreinterpretq_s8_u8(bits == 8 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
}
static inline vi vdot_begin(int32_t neg)
{
    const int32x4_t v = vdupq_n_s32(neg);
    return (vi){v, v, v, v};
}

#if defined(__ARM_FEATURE_DOTPROD)
#if defined(__ARM_FEATURE_MATMUL_INT8)
enum { VDOT_UNSIGNED = 1 };
#define VDOT_ADD(bits, r, w, x, lane) vusdotq_laneq_s32(r, w, x, lane)
#else
enum { VDOT_UNSIGNED = 0 };
#define VDOT_ADD(bits, r, w, x, lane) vdotq_laneq_s32(r, vdot_signed(bits, w), x, lane)
#endif
/* Computes r plus w times four of the codes x, the same in each output. */
#define VDOT_LANE(bits, r, w, x, lane)                                                             \
    (vi)                                                                                           \
    {                                                                                              \
        VDOT_ADD(bits, (r).a, (w).a, x, lane), VDOT_ADD(bits, (r).b, (w).b, x, lane),              \
            VDOT_ADD(bits, (r).c, (w).c, x, lane), VDOT_ADD(bits, (r).d, (w).d, x, lane)           \
    }
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    vi r = vdot_begin(bits == 8 && !VDOT_UNSIGNED ? 0 : neg);
    for (uint32_t i = 0; i < n; i += 4) {
        const int8x16_t codes = vld1q_s8(x + (size_t)4 * i);
        r = VDOT_LANE(bits, r, w[i], codes, 0);
        r = VDOT_LANE(bits, r, w[i + 1], codes, 1);
        r = VDOT_LANE(bits, r, w[i + 2], codes, 2);
        r = VDOT_LANE(bits, r, w[i + 3], codes, 3);
    }
    return r;
}
#else
/* Products are added in 16 bits, as many as fit (8 * 31 * 127 for codes of 5 bits), and then in
 * pairs. */
static inline __attribute__((always_inline)) int32x4_t
vdot_four(uint32_t bits, uint32_t n, const uint8x16_t *w, const int8x16_t *x)
{
    const uint32_t per_sum = bits < 6 ? 8 : bits == 6 ? 4 : 2;
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (uint32_t i = 0; i < n; i += per_sum) {
        const int8x16_t first = vdot_signed(bits, w[i]);
        int16x8_t l = vmull_s8(vget_low_s8(first), vget_low_s8(x[i]));
        int16x8_t h = vmull_high_s8(first, x[i]);
        for (uint32_t j = i + 1; j < i + per_sum && j < n; j++) {
            const int8x16_t code = vdot_signed(bits, w[j]);
            l = vmlal_s8(l, vget_low_s8(code), vget_low_s8(x[j]));
            h = vmlal_high_s8(h, code, x[j]);
        }
        low = vpadalq_s16(low, l);
        high = vpadalq_s16(high, h);
    }
    return vpaddq_s32(low, high);
}
static inline __attribute__((always_inline)) vi vi_dot(uint32_t bits, uint32_t n, const vq *w,
                                                       const int8_t *x, int32_t neg)
{
    const vi begin = vdot_begin(bits == 8 ? 0 : neg);
    int8x16_t fours[8];
    uint8x16_t a[8], b[8], c[8], d[8];
    for (uint32_t i = 0; i < n; i++) {
        int32_t four;
        memcpy(&four, x + (size_t)4 * i, sizeof four);
        fours[i] = vreinterpretq_s8_s32(vdupq_n_s32(four));
        a[i] = w[i].a;
        b[i] = w[i].b;
        c[i] = w[i].c;
        d[i] = w[i].d;
    }
    return (vi){vaddq_s32(begin.a, vdot_four(bits, n, a, fours)),
                vaddq_s32(begin.b, vdot_four(bits, n, b, fours)),
                vaddq_s32(begin.c, vdot_four(bits, n, c, fours)),
                vaddq_s32(begin.d, vdot_four(bits, n, d, fours))};
}
#endif

static inline vf vi_to_f(vi x)
{
    return (vf){vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}

static inline float vdot_largest(const float *x)
{
    const uint32x4_t size = vdupq_n_u32(0x7fffffffu);
    uint32x4_t m = vdupq_n_u32(0);
    for (int i = 0; i < 32; i += 4)
        m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), size));
    uint32_t bits = vmaxvq_u32(m);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline void vdot_round(const float *x, float factor, int8_t *to, int32_t half[2])
{
    for (int i = 0; i < 2; i++) {
        int32x4_t q[4];
        for (int j = 0; j < 4; j++)
            q[j] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * i + 4 * j), factor));
        const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
        const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
        vst1q_s8(to + 16 * i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        half[i] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    }
}
