#pragma once
/* Implements the operations of kernels/cpu/vec/vec.h with four registers of NEON. ARMv8.0-A
 * includes fused multiply-add and halves. Minimum and maximum are a comparison and a selection,
 * because fmin and fmax treat NaN and signed zeros differently from maxps. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VEC_NEON
typedef uint8_t vb __attribute__((vector_size(16)));
typedef struct {
    float32x4_t a, b, c, d; /* a: lanes 0..3; b: 4..7; c: 8..11; d: 12..15 */
} vf;

static inline vf vf_set1(float x)
{
    const float32x4_t v = vdupq_n_f32(x);
    return (vf){v, v, v, v};
}
static inline vf vf_zero(void)
{
    return vf_set1(0);
}
static inline vf vf_load(const float *p)
{
    return (vf){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
static inline void vf_store(float *p, vf x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static inline vf vf_load_n(const float *p, uint32_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, n * sizeof *p);
    return vf_load(lanes);
}
static inline void vf_store_n(float *p, vf x, uint32_t n)
{
    float lanes[16];
    vf_store(lanes, x);
    memcpy(p, lanes, n * sizeof *p);
}
#define VEC_BINARY(name, op)                                                                       \
    static inline vf name(vf x, vf y)                                                              \
    {                                                                                              \
        return (vf){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};                       \
    }
#define VEC_UNARY(name, op)                                                                        \
    static inline vf name(vf x)                                                                    \
    {                                                                                              \
        return (vf){op(x.a), op(x.b), op(x.c), op(x.d)};                                           \
    }
static inline float32x4_t vec_min(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
static inline float32x4_t vec_max(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
static inline float32x4_t vec_pow2(float32x4_t x)
{
    int32x4_t exp = vaddq_s32(vcvtq_s32_f32(x), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(exp, 23));
}
VEC_BINARY(vf_add, vaddq_f32)
VEC_BINARY(vf_sub, vsubq_f32)
VEC_BINARY(vf_mul, vmulq_f32)
VEC_BINARY(vf_div, vdivq_f32)
VEC_BINARY(vf_min, vec_min)
VEC_BINARY(vf_max, vec_max)
VEC_UNARY(vf_sqrt, vsqrtq_f32)
VEC_UNARY(vf_round, vrndnq_f32)
VEC_UNARY(vf_pow2, vec_pow2)
static inline vf vf_fma(vf x, vf y, vf z)
{
    return (vf){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                vfmaq_f32(z.d, x.d, y.d)};
}

static inline vf vec_from_halves(uint16x8_t lo, uint16x8_t hi)
{
    const float16x8_t l = vreinterpretq_f16_u16(lo), h = vreinterpretq_f16_u16(hi);
    return (vf){vcvt_f32_f16(vget_low_f16(l)), vcvt_high_f32_f16(l), vcvt_f32_f16(vget_low_f16(h)),
                vcvt_high_f32_f16(h)};
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return vec_from_halves(vld1q_u16(p), vld1q_u16(p + 8));
}
static inline float32x4_t vec_from_bf16(uint16x4_t x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return (vf){vec_from_bf16(vld1_u16(p)), vec_from_bf16(vld1_u16(p + 4)),
                vec_from_bf16(vld1_u16(p + 8)), vec_from_bf16(vld1_u16(p + 12))};
}
/* Converts to float16, at most +-65504. A NaN stays NaN: it is the second operand. */
static inline float16x4_t vec_to_f16(float32x4_t x)
{
    x = vec_max(vdupq_n_f32(-65504.0f), vec_min(vdupq_n_f32(65504.0f), x));
    return vcvt_f16_f32(x);
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vec_to_f16(x.a)));
    vst1_u16(p + 4, vreinterpret_u16_f16(vec_to_f16(x.b)));
    vst1_u16(p + 8, vreinterpret_u16_f16(vec_to_f16(x.c)));
    vst1_u16(p + 12, vreinterpret_u16_f16(vec_to_f16(x.d)));
}

static inline vb vb_load(const uint8_t *p)
{
    return (vb)vld1q_u8(p);
}
static inline uint32x4x4_t vec_from_u8(vb x)
{
    const uint16x8_t lo = vmovl_u8(vget_low_u8((uint8x16_t)x)), hi = vmovl_high_u8((uint8x16_t)x);
    return (uint32x4x4_t){{vmovl_u16(vget_low_u16(lo)), vmovl_high_u16(lo),
                           vmovl_u16(vget_low_u16(hi)), vmovl_high_u16(hi)}};
}
static inline vf vf_from_u8(vb x)
{
    const uint32x4x4_t w = vec_from_u8(x);
    return (vf){vcvtq_f32_u32(w.val[0]), vcvtq_f32_u32(w.val[1]), vcvtq_f32_u32(w.val[2]),
                vcvtq_f32_u32(w.val[3])};
}
static inline vf vf_from_i8(vb x)
{
    const int16x8_t lo = vmovl_s8(vget_low_s8((int8x16_t)x)), hi = vmovl_high_s8((int8x16_t)x);
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_high_s16(lo)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_high_s16(hi))};
}
static inline vb vb_lookup(vb table, vb i)
{
    return (vb)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)i);
}
/* Interprets the bits as a half whose exponent is 8 too small, and multiplies it by 2^8. */
static inline vf vf_from_e4m3(vb x)
{
    const int16x8_t keep = vdupq_n_s16((int16_t)0xbf80);
    const int16x8_t lo = vandq_s16(vshll_n_s8(vget_low_s8((int8x16_t)x), 7), keep);
    const int16x8_t hi = vandq_s16(vshll_high_n_s8((int8x16_t)x, 7), keep);
    return vf_mul(vec_from_halves(vreinterpretq_u16_s16(lo), vreinterpretq_u16_s16(hi)),
                  vf_set1(0x1p8f));
}
/* Converts each code c to 2^(c - 127). Code 0 gives 2^-127, which is subnormal. */
static inline float32x4_t vec_from_e8m0(uint32x4_t x)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(x, 23), vdupq_n_u32(0x00400000)));
}
static inline vf vf_from_e8m0(vb x)
{
    const uint32x4x4_t w = vec_from_u8(x);
    return (vf){vec_from_e8m0(w.val[0]), vec_from_e8m0(w.val[1]), vec_from_e8m0(w.val[2]),
                vec_from_e8m0(w.val[3])};
}

/* Computes the first two of the four steps of vf_sum. */
static inline float32x4_t vec_sum4(vf x)
{
    return vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
}
static inline float vf_sum(vf x)
{
    const float32x4_t s4 = vec_sum4(x);
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
/* Computes the last two steps of vf_sum, for four vectors at once. */
static inline float32x4_t vec_sums(const vf v[4])
{
    float32x4_t s[4], half[2];
    for (int i = 0; i < 4; i++)
        s[i] = vec_sum4(v[i]);
    for (int i = 0; i < 2; i++) {
        const float64x2_t x = vreinterpretq_f64_f32(s[2 * i]),
                          y = vreinterpretq_f64_f32(s[2 * i + 1]);
        half[i] = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)),
                            vreinterpretq_f32_f64(vzip2q_f64(x, y)));
    }
    return vpaddq_f32(half[0], half[1]);
}
static inline vf vf_sum16(const vf v[16])
{
    return (vf){vec_sums(v), vec_sums(v + 4), vec_sums(v + 8), vec_sums(v + 12)};
}
static inline float vf_hmax(vf x)
{
    const float32x4_t m4 = vec_max(vec_max(x.a, x.c), vec_max(x.b, x.d));
    const float32x4_t m2 = vec_max(m4, vextq_f32(m4, m4, 2));
    const float even = vgetq_lane_f32(m2, 0), odd = vgetq_lane_f32(m2, 1);
    return even > odd ? even : odd;
}
