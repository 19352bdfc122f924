/* Reads blocks of every format of weights into one neutral form (blocks.h): scales, and one code
 * a byte.
 * The packers of both backends and `dequantize_row` call a format's `unpack` with one block of a
 * file; `block_value` converts a code to a float. `format_of` has the table of formats.
 * Functions keep no state, and any thread may call them. They read exactly block_bytes of the
 * block, and write block_elems codes. */
#include "kernels/host/blocks.h"

#include <math.h>
#include <string.h>

#include "kernels/host/byte_vectors.h"
#include "kernels/host/f16.h"

typedef uint64_t vq __attribute__((vector_size(16)));

static uint16_t read_u16(const uint8_t *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

/* Adds the bits `mask`, from bit `from` on, of each of n bytes to the bytes of `to` at bit `at`.
 * The bytes of `to` must be zero from bit `at` on; n is a multiple of 16. The function shifts
 * words, because processors have no shifts of bytes. */
static inline void add_bits(uint8_t *to, const uint8_t *p, uint32_t n, uint32_t from, uint32_t mask,
                            uint32_t at)
{
    for (uint32_t i = 0; i < n; i += 16) {
        vw v, sum = {0};
        memcpy(&v, p + i, sizeof v);
        if (at > 0)
            memcpy(&sum, to + i, sizeof sum);
        sum |= (v >> from & mask * 0x01010101) << at;
        memcpy(to + i, &sum, sizeof sum);
    }
}
static inline void take_bits(uint8_t *to, const uint8_t *p, uint32_t n, uint32_t from,
                             uint32_t mask)
{
    add_bits(to, p, n, from, mask, 0);
}

/* Returns eight codes of less than eight bits, packed. */
static inline uint64_t eight_codes(const uint8_t *p, uint32_t bits)
{
    uint32_t w = 0;
    uint16_t low;
    if (bits == 4) {
        memcpy(&w, p, 4);
        return w;
    }
    if (bits == 1)
        return p[0];
    memcpy(&low, p, sizeof low);
    return bits == 2 ? low : low | (uint32_t)p[2] << 16;
}

/* Spreads 32 packed codes of less than eight bits, lowest bit of the first byte first, into
 * bytes. In each group of eight codes, the upper four move to the upper half of a word. Then the
 * upper two of each half move, then the second of each two. */
static inline void spread(uint8_t to[32], const uint8_t *p, uint32_t bits)
{
    const uint64_t one = (1u << bits) - 1, two = (1u << 2 * bits) - 1, four = (1u << 4 * bits) - 1;
    for (uint32_t i = 0; i < 4; i += 2) {
        vq v = {eight_codes(p + i * bits, bits), eight_codes(p + (i + 1) * bits, bits)};
        v = (v | v << (32 - 4 * bits)) & four * 0x100000001;
        v = (v | v << (16 - 2 * bits)) & two * 0x1000100010001;
        v = (v | v << (8 - bits)) & one * 0x101010101010101;
        memcpy(to + 8 * i, &v, sizeof v);
    }
}

/* ---- GGML, blocks of 32 ---- */

static void unpack_q8_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    memcpy(b->codes, p + 2, 32);
}

/* Unpacks codes of four bits. Low halves are first: elements 16 apart share a byte. */
static void unpack_halves(struct block *b, const uint8_t *p)
{
    take_bits(b->codes, p, 16, 0, 15);
    take_bits(b->codes + 16, p, 16, 4, 15);
}

/* Adds the fifth bit of each of 32 codes, in order. */
static void unpack_fifth(struct block *b, const uint8_t *p)
{
    uint8_t bits[32];
    spread(bits, p, 1);
    add_bits(b->codes, bits, 32, 0, 1, 4);
}

static void unpack_q4_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    unpack_halves(b, p + 2);
}

static void unpack_q4_1(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->dmin = read_u16(p + 2);
    unpack_halves(b, p + 4);
}

static void unpack_q5_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    unpack_halves(b, p + 6);
    unpack_fifth(b, p + 2);
}

static void unpack_q5_1(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->dmin = read_u16(p + 2);
    unpack_halves(b, p + 8);
    unpack_fifth(b, p + 4);
}

static void unpack_mxfp4(struct block *b, const uint8_t *p)
{
    b->zero = p[0];
    unpack_halves(b, p + 1);
}

/* ---- GGML, blocks of 256 ---- */

/* Reads two-bit codes. For each half of 128 elements, the bits of one place in 32 bytes are 32
 * consecutive elements. */
static void unpack_pairs_of_bits(struct block *b, const uint8_t *p)
{
    for (uint32_t i = 0; i < 8; i++)
        take_bits(b->codes + 32 * i, p + i / 4 * 32, 32, i % 4 * 2, 3);
}

static void unpack_q2_k(struct block *b, const uint8_t *p)
{
    for (int i = 0; i < 16; i++) {
        b->scales[i] = p[i] & 15;
        b->mins[i] = p[i] >> 4;
    }
    unpack_pairs_of_bits(b, p + 16);
    b->d = read_u16(p + 80);
    b->dmin = read_u16(p + 82);
}

/* Reads 16 scales of six bits from twelve bytes: four bits in the first eight bytes, two bits in
 * the others. */
static void unpack_q3_k(struct block *b, const uint8_t *p)
{
    const uint8_t *scales = p + 96;
    unpack_pairs_of_bits(b, p + 32);
    for (uint32_t i = 0; i < 8; i++)
        add_bits(b->codes + 32 * i, p, 32, i, 1, 2);
    for (int i = 0; i < 16; i++) {
        int low = scales[i % 8] >> i / 8 * 4 & 15, high = scales[8 + i % 4] >> i / 4 * 2 & 3;
        b->scales[i] = (uint8_t)((low | high << 4) - 32);
    }
    b->d = read_u16(p + 108);
}

/* Reads eight scales and eight mins of six bits from twelve bytes. */
static void unpack_scales_k(struct block *b, const uint8_t *p)
{
    for (int i = 0; i < 4; i++) {
        b->scales[i] = p[i] & 63;
        b->mins[i] = p[i + 4] & 63;
        b->scales[i + 4] = (uint8_t)((p[i + 8] & 15) | p[i] >> 6 << 4);
        b->mins[i + 4] = (uint8_t)(p[i + 8] >> 4 | p[i + 4] >> 6 << 4);
    }
}

static void unpack_nibbles_k(struct block *b, const uint8_t *p)
{
    for (uint32_t i = 0; i < 8; i++)
        take_bits(b->codes + 32 * i, p + i / 2 * 32, 32, i % 2 * 4, 15);
}

static void unpack_q4_k(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->dmin = read_u16(p + 2);
    unpack_scales_k(b, p + 4);
    unpack_nibbles_k(b, p + 16);
}

static void unpack_q5_k(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->dmin = read_u16(p + 2);
    unpack_scales_k(b, p + 4);
    unpack_nibbles_k(b, p + 48);
    for (uint32_t i = 0; i < 8; i++)
        add_bits(b->codes + 32 * i, p + 16, 32, i, 1, 4);
}

static void unpack_q6_k(struct block *b, const uint8_t *p)
{
    for (uint32_t i = 0; i < 8; i++) {
        take_bits(b->codes + 32 * i, p + i / 4 * 64 + i % 2 * 32, 32, i % 4 / 2 * 4, 15);
        add_bits(b->codes + 32 * i, p + 128 + i / 4 * 32, 32, i % 4 * 2, 3, 4);
    }
    memcpy(b->scales, p + 192, 16);
    b->d = read_u16(p + 208);
}

/* ---- ours ---- */

static void unpack_int2(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->zero = p[2];
    spread(b->codes, p + 4, 2);
}

static void unpack_int3(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->zero = p[2];
    spread(b->codes, p + 4, 3);
}

static void unpack_int4(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->zero = p[2];
    spread(b->codes, p + 4, 4);
}

static void unpack_int8(struct block *b, const uint8_t *p)
{
    memcpy(&b->d32, p, sizeof b->d32);
    b->zero = p[4];
    memcpy(b->codes, p + 5, 32);
}

static void unpack_fp8(struct block *b, const uint8_t *p)
{
    memcpy(&b->d32, p, sizeof b->d32);
    memcpy(b->codes, p + sizeof b->d32, 32);
}

const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
const int8_t iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

const struct format *format_of(enum dtype dtype)
{
    static const struct format formats[DTYPE_COUNT] = {
        [DTYPE_F32] = {VALUES_PLAIN, 1, 1, .block_bytes = 4},
        [DTYPE_F16] = {VALUES_PLAIN, 1, 1, .block_bytes = 2},
        [DTYPE_BF16] = {VALUES_PLAIN, 1, 1, .block_bytes = 2},
        [DTYPE_Q8_0] = {VALUES_OFFSET, 32, 32, 8, 34, .signed_codes = true, .unpack = unpack_q8_0},
        [DTYPE_Q4_0] = {VALUES_OFFSET, 32, 32, 4, 18, .offset = 8, .unpack = unpack_q4_0},
        [DTYPE_Q5_0] = {VALUES_OFFSET, 32, 32, 5, 22, .offset = 16, .unpack = unpack_q5_0},
        [DTYPE_Q4_1] = {VALUES_MIN, 32, 32, 4, 20, .unpack = unpack_q4_1},
        [DTYPE_Q5_1] = {VALUES_MIN, 32, 32, 5, 24, .unpack = unpack_q5_1},
        [DTYPE_IQ4_NL] = {VALUES_TABLE, 32, 32, 4, 18, .table = iq4_nl_values,
                          .unpack = unpack_q4_0},
        [DTYPE_MXFP4] = {VALUES_E2M1, 32, 32, 4, 17, .table = mxfp4_values, .unpack = unpack_mxfp4},
        [DTYPE_Q2_K] = {VALUES_SCALED_MIN, 256, 16, 2, 84, .scales_are_nibbles = true,
                        .unpack = unpack_q2_k},
        [DTYPE_Q3_K] = {VALUES_SCALED, 256, 16, 3, 110, .offset = 4, .signed_scales = true,
                        .unpack = unpack_q3_k},
        [DTYPE_Q4_K] = {VALUES_SCALED_MIN, 256, 32, 4, 144, .unpack = unpack_q4_k},
        [DTYPE_Q5_K] = {VALUES_SCALED_MIN, 256, 32, 5, 176, .unpack = unpack_q5_k},
        [DTYPE_Q6_K] = {VALUES_SCALED, 256, 16, 6, 210, .offset = 32, .signed_scales = true,
                        .unpack = unpack_q6_k},
        [DTYPE_INT2] = {VALUES_ZERO, 32, 32, 2, 12, .unpack = unpack_int2},
        [DTYPE_INT3] = {VALUES_ZERO, 32, 32, 3, 16, .unpack = unpack_int3},
        [DTYPE_INT4] = {VALUES_ZERO, 32, 32, 4, 20, .unpack = unpack_int4},
        [DTYPE_INT8] = {VALUES_ZERO_D32, 32, 32, 8, 37, .unpack = unpack_int8},
        [DTYPE_FP8] = {VALUES_E4M3, 32, 32, 8, 36, .unpack = unpack_fp8},
    };
    if ((uint32_t)dtype >= DTYPE_COUNT || formats[dtype].block_elems == 0)
        return NULL;
    return &formats[dtype];
}

/* ---- values ---- */

static float value_of_e4m3(uint8_t code)
{
    uint32_t bits = (uint32_t)(code & 0x7f) << 20 | (uint32_t)(code & 0x80) << 24;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f * 0x1p120f;
}

static void plain_values(enum dtype dtype, const uint8_t *p, uint32_t k, float *out)
{
    if (dtype == DTYPE_F32)
        memcpy(out, p, k * sizeof *out);
    for (uint32_t i = 0; dtype == DTYPE_F16 && i < k; i++)
        out[i] = f32_from_f16(read_u16(p + 2 * i));
    for (uint32_t i = 0; dtype == DTYPE_BF16 && i < k; i++) {
        uint32_t bits = (uint32_t)read_u16(p + 2 * i) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

float block_value(const struct format *f, const struct block *b, uint32_t i)
{
    uint32_t g = i / f->group_elems;
    float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
    float code = f->signed_codes ? (float)(int8_t)b->codes[i] : (float)b->codes[i];
    float scale = f->signed_scales ? (float)(int8_t)b->scales[g] : (float)b->scales[g];
    switch (f->values) {
    case VALUES_OFFSET:
        return d * (code - (float)f->offset);
    case VALUES_MIN:
        return d * code + dmin;
    case VALUES_SCALED:
        return d * scale * (code - (float)f->offset);
    case VALUES_SCALED_MIN:
        return d * scale * code - dmin * (float)b->mins[g];
    case VALUES_ZERO:
        return d * (float)(b->codes[i] - b->zero);
    case VALUES_ZERO_D32:
        return b->d32 * (float)((int8_t)b->codes[i] - (int8_t)b->zero);
    case VALUES_E4M3:
        return b->d32 * value_of_e4m3(b->codes[i]);
    case VALUES_TABLE:
        return d * (float)f->table[b->codes[i]];
    case VALUES_E2M1:
        return ldexpf((float)f->table[b->codes[i]], b->zero - 128);
    case VALUES_PLAIN:
    case VALUES_COUNT:
        break;
    }
    return 0;
}

bool dequantize_row(enum dtype dtype, const void *row, uint32_t k, float *out)
{
    const struct format *f = format_of(dtype);
    if (!f || k % f->block_elems != 0)
        return false;
    const uint8_t *p = row;
    struct block b = {0};
    if (f->values == VALUES_PLAIN) {
        plain_values(dtype, row, k, out);
        return true;
    }
    for (uint32_t i = 0; i < k; i += f->block_elems, p += f->block_bytes) {
        f->unpack(&b, p);
        for (uint32_t j = 0; j < f->block_elems; j++)
            out[i + j] = block_value(f, &b, j);
    }
    return true;
}
