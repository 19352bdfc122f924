#pragma once
/* Reads packed weights as vectors of 16 outputs (the layouts of kernels/cpu/pack/pack.h), for
 * any vec/ISA.h. The dtype is a constant of every function: after inlining, only one branch
 * remains. A stream is read by blocks, then by groups of one scale, then by eight k, then by
 * pairs of k. */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pack/pack.h"
#include "kernels/cpu/vec/pairs_impl.h"

#define KERNEL_INLINE static inline __attribute__((always_inline))
/* Unrolls the loop that follows. Its index must become a constant, since shifts and registers
 * depend on it. */
#ifdef __clang__
#define KERNEL_UNROLL _Pragma("unroll")
#else
#define KERNEL_UNROLL _Pragma("GCC unroll 16")
#endif

/* `fmt_scales` holds the scales of the group of inputs that is being read. */
struct fmt_scales {
    vf d, neg_dmin; /* scales of the whole block */
    vf scale, neg_min;
    vb zero;   /* zeros of INT2, INT3 and INT4 */
    vf zero_f; /* zeros of INT8 */
};

KERNEL_INLINE bool fmt_is_plain(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
}
/* Returns whether each block has a min. */
KERNEL_INLINE bool fmt_has_min(enum dtype t)
{
    return t == DTYPE_Q4_1 || t == DTYPE_Q5_1;
}
/* Returns whether each group has a min. */
KERNEL_INLINE bool fmt_has_mins(enum dtype t)
{
    return t == DTYPE_Q2_K || t == DTYPE_Q4_K || t == DTYPE_Q5_K;
}
KERNEL_INLINE bool fmt_has_zero(enum dtype t)
{
    return t == DTYPE_INT2 || t == DTYPE_INT3 || t == DTYPE_INT4;
}
KERNEL_INLINE uint32_t fmt_code_bits(enum dtype t)
{
    switch (t) {
    case DTYPE_Q2_K:
    case DTYPE_INT2:
        return 2;
    case DTYPE_Q3_K:
    case DTYPE_INT3:
        return 3;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
        return 5;
    case DTYPE_Q6_K:
        return 6;
    case DTYPE_Q8_0:
    case DTYPE_INT8:
    case DTYPE_FP8:
        return 8;
    case DTYPE_F16:
    case DTYPE_BF16:
        return 16;
    case DTYPE_F32:
        return 32;
    default:
        return 4;
    }
}
/* Returns the number of inputs in a block. Plain numbers have blocks of eight, and their last
 * block may be shorter. */
KERNEL_INLINE uint32_t fmt_block_elems(enum dtype t)
{
    bool is_k = fmt_has_mins(t) || t == DTYPE_Q3_K || t == DTYPE_Q6_K;
    return fmt_is_plain(t) ? 8 : is_k ? 256 : 32;
}
KERNEL_INLINE uint32_t fmt_group_elems(enum dtype t)
{
    bool small = t == DTYPE_Q2_K || t == DTYPE_Q3_K || t == DTYPE_Q6_K;
    return fmt_is_plain(t) ? 8 : small ? 16 : 32;
}
/* Returns the number of bytes that eight inputs of a panel take. */
KERNEL_INLINE uint32_t fmt_bytes_8k(enum dtype t)
{
    return fmt_code_bits(t) * PANEL_N;
}

/* Returns the bits of `mask` after a move from bit `from` of each byte to bit `to`. It shifts
 * pairs of bytes, since vectors have no shifts of bytes. Bits that are shifted into the other
 * byte must be outside of `mask`. */
KERNEL_INLINE vb fmt_bits(vb a, uint32_t from, uint32_t to, uint8_t mask)
{
    typedef uint16_t vec_u16 __attribute__((vector_size(16)));
    vec_u16 pairs = (vec_u16)a;
    return (vb)(from > to ? pairs >> (from - to) : pairs << (to - from)) & mask;
}

/* fmt_begin_block() and fmt_begin_group() return the address at which the next data begins. */
KERNEL_INLINE const uint8_t *fmt_begin_block(enum dtype t, const uint8_t *p, struct fmt_scales *s)
{
    if (fmt_is_plain(t))
        return p;
    if (t == DTYPE_FP8 || t == DTYPE_INT8) {
        s->d = vf_load((const float *)p);
        p += 4 * PANEL_N;
        if (t == DTYPE_FP8)
            return p;
        s->zero_f = vf_from_i8(vb_load(p));
        return p + PANEL_N;
    }
    if (t == DTYPE_MXFP4) { /* the table holds the doubled values */
        s->d = vf_mul(vf_from_e8m0(vb_load(p)), vf_set1(0.5f));
        return p + PANEL_N;
    }
    s->d = vf_load_f16((const uint16_t *)p);
    p += 2 * PANEL_N;
    if (fmt_has_zero(t)) {
        s->zero = vb_load(p);
        return p + PANEL_N;
    }
    if (fmt_has_mins(t)) {
        s->neg_dmin = vf_sub(vf_zero(), vf_load_f16((const uint16_t *)p));
        p += 2 * PANEL_N;
    }
    if (fmt_has_min(t)) {
        s->neg_min = vf_load_f16((const uint16_t *)p);
        p += 2 * PANEL_N;
    }
    return p;
}
KERNEL_INLINE const uint8_t *fmt_begin_group(enum dtype t, const uint8_t *p, struct fmt_scales *s)
{
    if (t == DTYPE_Q3_K || t == DTYPE_Q6_K) {
        s->scale = vf_mul(s->d, vf_from_i8(vb_load(p)));
        return p + PANEL_N;
    }
    if (t == DTYPE_Q2_K) {
        vb both = vb_load(p);
        s->scale = vf_mul(s->d, vf_from_u8(both & 15));
        s->neg_min = vf_mul(s->neg_dmin, vf_from_u8(fmt_bits(both, 4, 0, 15)));
        return p + PANEL_N;
    }
    if (fmt_has_mins(t)) {
        s->scale = vf_mul(s->d, vf_from_u8(vb_load(p)));
        s->neg_min = vf_mul(s->neg_dmin, vf_from_u8(vb_load(p + PANEL_N)));
        return p + 2 * PANEL_N;
    }
    if (!fmt_is_plain(t))
        s->scale = s->d;
    return p;
}

/* Returns input i of the n plain numbers that are left from p on. */
KERNEL_INLINE vf fmt_plain(enum dtype t, const uint8_t *p, uint32_t i, uint32_t n)
{
    if (t == DTYPE_F16)
        return vf_load_f16((const uint16_t *)p + i * PANEL_N);
    if (t == DTYPE_BF16 && i % 2 == 0 && i + 1 == n)
        return vf_load_bf16((const uint16_t *)p + i * PANEL_N);
    if (t == DTYPE_BF16) {
        vf w[2];
        vf_load_pairs((const uint16_t *)p + i / 2 * 2 * PANEL_N, w);
        return w[i % 2];
    }
    return vf_load((const float *)p + i * PANEL_N);
}

/* Reads the codes of less than eight bits of k = 2i into q[0] and of k = 2i + 1 into q[1]. */
KERNEL_INLINE void fmt_codes(uint32_t bits, const uint8_t *p, uint32_t i, vb q[2])
{
    if (bits < 4) {
        vb low = vb_load(p + i / 2 * PANEL_N);
        q[0] = fmt_bits(low, i % 2 * 4, 0, 3);
        q[1] = fmt_bits(low, i % 2 * 4 + 2, 0, 3);
    } else {
        vb nibbles = vb_load(p + i * PANEL_N);
        q[0] = nibbles & 15;
        q[1] = fmt_bits(nibbles, 4, 0, 15);
    }
    if (bits == 3 || bits == 5) {
        vb high = vb_load(p + (bits - 1) * PANEL_N);
        q[0] |= fmt_bits(high, 2 * i, bits - 1, (uint8_t)(1u << (bits - 1)));
        q[1] |= fmt_bits(high, 2 * i + 1, bits - 1, (uint8_t)(1u << (bits - 1)));
    }
    if (bits == 6) {
        vb high = vb_load(p + (4 + i / 2) * PANEL_N);
        q[0] |= fmt_bits(high, i % 2 * 4, 4, 0x30);
        q[1] |= fmt_bits(high, i % 2 * 4 + 2, 4, 0x30);
    }
}

/* Returns the values of the 16 one-byte codes at p. */
KERNEL_INLINE vf fmt_byte(enum dtype t, const uint8_t *p, const struct fmt_scales *s)
{
    vb code = vb_load(p);
    if (t == DTYPE_FP8)
        return vf_mul(s->scale, vf_from_e4m3(code));
    if (t == DTYPE_INT8)
        return vf_mul(s->scale, vf_sub(vf_from_i8(code), s->zero_f));
    return vf_mul(s->scale, vf_from_i8(code));
}

KERNEL_INLINE uint8_t fmt_offset(enum dtype t)
{
    return t == DTYPE_Q3_K ? 4 : t == DTYPE_Q4_0 ? 8 : t == DTYPE_Q5_0 ? 16 : 32;
}

/* Computes the weights of k = 2i (w[0]) and 2i + 1 (w[1]) of the eight inputs that begin at p; i
 * < 4. */
KERNEL_INLINE void fmt_pair(enum dtype t, const uint8_t *p, uint32_t i, const struct fmt_scales *s,
                            vf w[2])
{
    if (fmt_is_plain(t)) {
        w[0] = fmt_plain(t, p, 2 * i, 8);
        w[1] = fmt_plain(t, p, 2 * i + 1, 8);
        return;
    }
    if (fmt_code_bits(t) == 8) {
        w[0] = fmt_byte(t, p + 2 * i * PANEL_N, s);
        w[1] = fmt_byte(t, p + (2 * i + 1) * PANEL_N, s);
        return;
    }
    vb q[2];
    fmt_codes(fmt_code_bits(t), p, i, q);
    if (fmt_has_min(t) || fmt_has_mins(t)) {
        w[0] = vf_fma(s->scale, vf_from_u8(q[0]), s->neg_min);
        w[1] = vf_fma(s->scale, vf_from_u8(q[1]), s->neg_min);
        return;
    }
    if (t == DTYPE_MXFP4 || t == DTYPE_IQ4_NL) {
        const vb table =
            vb_load((const uint8_t *)(t == DTYPE_MXFP4 ? mxfp4_values : iq4_nl_values));
        q[0] = vb_lookup(table, q[0]);
        q[1] = vb_lookup(table, q[1]);
    } else if (fmt_has_zero(t)) {
        q[0] -= s->zero;
        q[1] -= s->zero;
    } else {
        q[0] -= fmt_offset(t);
        q[1] -= fmt_offset(t);
    }
    w[0] = vf_mul(s->scale, vf_from_i8(q[0]));
    w[1] = vf_mul(s->scale, vf_from_i8(q[1]));
}

/* Converts k inputs from p on to floats, out[k][16]. k is a whole number of blocks. */
KERNEL_INLINE void fmt_dequantize(enum dtype t, const uint8_t *p, uint32_t k, float *out)
{
    uint32_t n_blocks = k / fmt_block_elems(t);
    struct fmt_scales s;
    for (uint32_t i_block = 0; i_block < n_blocks; i_block++) {
        p = fmt_begin_block(t, p, &s);
        for (uint32_t i_group = 0; i_group < fmt_block_elems(t) / fmt_group_elems(t); i_group++) {
            p = fmt_begin_group(t, p, &s);
            for (uint32_t i = 0; i < fmt_group_elems(t); i += 8, p += fmt_bytes_8k(t)) {
                KERNEL_UNROLL
                for (uint32_t i_pair = 0; i_pair < 4; i_pair++) {
                    vf w[2];
                    fmt_pair(t, p, i_pair, &s, w);
                    vf_store(out + 2 * i_pair * PANEL_N, w[0]);
                    vf_store(out + (2 * i_pair + 1) * PANEL_N, w[1]);
                }
                out += 8 * PANEL_N;
            }
        }
    }
    for (uint32_t i = 0; fmt_is_plain(t) && i < k % 8; i++)
        vf_store(out + i * PANEL_N, fmt_plain(t, p, i, k % 8));
}
