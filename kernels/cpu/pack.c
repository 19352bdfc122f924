/* Blocks are read into one neutral form (scales and one code a byte, k in order), which both
 * dequantize_row and the packer take: sixteen rows' codes are transposed, 16 x 16 bytes at a time,
 * and joined again into the bits of pack.h. The block layouts are those of GGML (ggml-common.h:
 * block_q4_0 and its like). */
#include "kernels/cpu/pack.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/f16.h"
#include "kernels/cpu/pack_plain.h"

enum { MAX_BLOCK = 256, MAX_GROUPS = 16 };

typedef uint8_t vb __attribute__((vector_size(16)));

struct block {
    uint16_t d, dmin;
    float d32;                                    /* FP8 */
    uint8_t zero;                                 /* INT4; the exponent of MXFP4 */
    uint8_t scales[MAX_GROUPS], mins[MAX_GROUPS]; /* of each group of k */
    uint8_t codes[MAX_BLOCK];
};

/* A block of block_elems is groups of group_elems; code_bits 0: plain numbers. */
struct format {
    uint32_t block_elems, group_elems, code_bits;
    bool has_scales, has_mins;
    uint8_t offset;       /* value = code - offset */
    bool signed_codes;    /* codes are i8 */
    bool signed_scales;   /* scales are i8 */
    uint32_t head_bytes;  /* of an output's block in a panel, before scales and codes */
    uint32_t block_bytes; /* in the file */
    void (*unpack)(struct block *b, const uint8_t *p);
};

static uint16_t read_u16(const uint8_t *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static void unpack_q8_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    memcpy(b->codes, p + 2, 32);
}

static void unpack_q4_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    for (int i = 0; i < 16; i++) {
        b->codes[i] = p[2 + i] & 15;
        b->codes[i + 16] = p[2 + i] >> 4;
    }
}

static void unpack_q5_0(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    for (int i = 0; i < 16; i++) {
        b->codes[i] = (uint8_t)((p[6 + i] & 15) | (p[2 + i / 8] >> i % 8 & 1) << 4);
        b->codes[i + 16] = (uint8_t)(p[6 + i] >> 4 | (p[4 + i / 8] >> i % 8 & 1) << 4);
    }
}

/* Eight scales and eight mins of six bits in twelve bytes. */
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
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 32; i++) {
            b->codes[64 * j + i] = p[32 * j + i] & 15;
            b->codes[64 * j + 32 + i] = p[32 * j + i] >> 4;
        }
    }
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
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            b->codes[32 * j + i] |= (uint8_t)((p[16 + i] >> j & 1) << 4);
}

static void unpack_q6_k(struct block *b, const uint8_t *p)
{
    const uint8_t *low = p, *high = p + 128;
    uint8_t *to = b->codes;
    for (int half = 0; half < 2; half++, low += 64, high += 32, to += 128) {
        for (int i = 0; i < 32; i++) {
            to[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            to[i + 32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            to[i + 64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            to[i + 96] = (uint8_t)(low[i + 32] >> 4 | (high[i] >> 6 & 3) << 4);
        }
    }
    memcpy(b->scales, p + 192, 16);
    b->d = read_u16(p + 208);
}

static void unpack_int4(struct block *b, const uint8_t *p)
{
    b->d = read_u16(p);
    b->zero = p[2];
    for (int i = 0; i < 16; i++) {
        b->codes[2 * i] = p[4 + i] & 15;
        b->codes[2 * i + 1] = p[4 + i] >> 4;
    }
}

static void unpack_fp8(struct block *b, const uint8_t *p)
{
    memcpy(&b->d32, p, sizeof b->d32);
    memcpy(b->codes, p + sizeof b->d32, 32);
}

static void unpack_mxfp4(struct block *b, const uint8_t *p)
{
    b->zero = p[0];
    for (int i = 0; i < 16; i++) {
        b->codes[i] = p[1 + i] & 15;
        b->codes[i + 16] = p[1 + i] >> 4;
    }
}

const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static const struct format *format_of(enum dtype dtype)
{
    static const struct format formats[DTYPE_COUNT] = {
        [DTYPE_F32] = {.block_elems = 1, .block_bytes = 4},
        [DTYPE_F16] = {.block_elems = 1, .block_bytes = 2},
        [DTYPE_BF16] = {.block_elems = 1, .block_bytes = 2},
        [DTYPE_Q8_0] = {32, 32, 8, .signed_codes = true, .head_bytes = 2, .block_bytes = 34,
                        .unpack = unpack_q8_0},
        [DTYPE_Q4_0] = {32, 32, 4, .offset = 8, .head_bytes = 2, .block_bytes = 18,
                        .unpack = unpack_q4_0},
        [DTYPE_Q5_0] = {32, 32, 5, .offset = 16, .head_bytes = 2, .block_bytes = 22,
                        .unpack = unpack_q5_0},
        [DTYPE_Q4_K] = {256, 32, 4, true, true, .head_bytes = 4, .block_bytes = 144,
                        .unpack = unpack_q4_k},
        [DTYPE_Q5_K] = {256, 32, 5, true, true, .head_bytes = 4, .block_bytes = 176,
                        .unpack = unpack_q5_k},
        [DTYPE_Q6_K] = {256, 16, 6, true, .offset = 32, .signed_scales = true, .head_bytes = 2,
                        .block_bytes = 210, .unpack = unpack_q6_k},
        [DTYPE_INT4] = {32, 32, 4, .head_bytes = 3, .block_bytes = 20, .unpack = unpack_int4},
        [DTYPE_FP8] = {32, 32, 8, .head_bytes = 4, .block_bytes = 36, .unpack = unpack_fp8},
        [DTYPE_MXFP4] = {32, 32, 4, .head_bytes = 1, .block_bytes = 17, .unpack = unpack_mxfp4},
    };
    if ((uint32_t)dtype >= DTYPE_COUNT || formats[dtype].block_elems == 0)
        return NULL;
    return &formats[dtype];
}

static uint64_t panel_block_bytes(const struct format *f)
{
    if (f->code_bits == 0)
        return (uint64_t)f->block_bytes * PANEL_N;
    uint32_t n_groups = f->block_elems / f->group_elems;
    return PANEL_N * (f->head_bytes + n_groups * (f->has_scales + f->has_mins)) +
           2ull * f->block_elems * f->code_bits;
}

uint64_t pack_panel_bytes(enum dtype dtype, uint32_t k)
{
    const struct format *f = format_of(dtype);
    if (!f || k % f->block_elems != 0)
        return 0;
    return k / f->block_elems * panel_block_bytes(f);
}

/* One stage of the butterfly: interleaving vector i with vector i + 8, four times, transposes. */
static void transpose_stage(vb *to, const vb *from)
{
    for (int i = 0; i < 8; i++) {
        vb a = from[i], b = from[i + 8];
        to[2 * i] =
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        to[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                14, 30, 15, 31);
    }
}

/* to[k] = code k of each of the 16 rows, for 16 k from i_k. */
static void transpose_codes(vb to[16], const struct block rows[PANEL_N], uint32_t i_k)
{
    vb tmp[16];
    for (uint32_t i = 0; i < PANEL_N; i++)
        memcpy(&to[i], rows[i].codes + i_k, 16);
    transpose_stage(tmp, to);
    transpose_stage(to, tmp);
    transpose_stage(tmp, to);
    transpose_stage(to, tmp);
}

static uint8_t *put(uint8_t *to, vb v)
{
    memcpy(to, &v, sizeof v);
    return to + sizeof v;
}

/* Eight k of 16 outputs. */
static uint8_t *put_codes(uint8_t *to, const vb c[8], uint32_t code_bits)
{
    if (code_bits == 8) {
        memcpy(to, c, 128);
        return to + 128;
    }
    for (int i = 0; i < 4; i++)
        to = put(to, (c[2 * i] & 15) | c[2 * i + 1] << 4);
    if (code_bits == 5) {
        vb high = {0};
        for (int i = 0; i < 8; i++)
            high |= c[i] >> 4 << i;
        to = put(to, high);
    }
    if (code_bits == 6)
        for (int i = 0; i < 8; i += 4)
            to = put(to, c[i] >> 4 | c[i + 1] >> 4 << 2 | c[i + 2] >> 4 << 4 | c[i + 3] >> 4 << 6);
    return to;
}

/* head_bytes: 1 exponents, 2 d, 3 d and zero, 4 d and dmin or, where there is none, a float. */
static void put_head(const struct format *f, const struct block rows[PANEL_N], uint8_t *to)
{
    for (uint32_t i = 0; i < PANEL_N; i++) {
        if (f->head_bytes == 4 && !f->has_mins)
            memcpy(to + 4 * i, &rows[i].d32, 4);
        else if (f->head_bytes > 1)
            memcpy(to + 2 * i, &rows[i].d, 2);
        if (f->has_mins)
            memcpy(to + 2 * PANEL_N + 2 * i, &rows[i].dmin, 2);
        if (f->head_bytes % 2 == 1)
            to[(f->head_bytes - 1) * PANEL_N + i] = rows[i].zero;
    }
}

static void pack_block(const struct format *f, const struct block rows[PANEL_N], uint8_t *to)
{
    put_head(f, rows, to);
    to += f->head_bytes * PANEL_N;
    for (uint32_t i_group = 0; i_group < f->block_elems / f->group_elems; i_group++) {
        for (uint32_t i = 0; f->has_scales && i < PANEL_N; i++)
            *to++ = rows[i].scales[i_group];
        for (uint32_t i = 0; f->has_mins && i < PANEL_N; i++)
            *to++ = rows[i].mins[i_group];
        for (uint32_t i_k = 0; i_k < f->group_elems; i_k += 16) {
            vb codes[16];
            transpose_codes(codes, rows, i_group * f->group_elems + i_k);
            to = put_codes(to, codes, f->code_bits);
            to = put_codes(to, codes + 8, f->code_bits);
        }
    }
}

void pack_panel(struct weight *w, const struct weight_rows *rows, uint32_t i_panel)
{
    const struct format *f = format_of(w->dtype);
    uint32_t first = i_panel * PANEL_N;
    uint32_t n_rows = w->n - first < PANEL_N ? w->n - first : PANEL_N;
    uint8_t *to = (uint8_t *)w->data + i_panel * pack_panel_bytes(w->dtype, w->k);
    struct weight_rows from = {rows->ptr + first * rows->stride_bytes, rows->stride_bytes};
    if (f->code_bits == 0) {
        pack_plain(to, &from, n_rows, w->k, f->block_bytes);
        return;
    }
    struct block blocks[PANEL_N];
    memset(blocks, 0, sizeof blocks); /* rows beyond n stay so */
    for (uint32_t i_block = 0; i_block < w->k / f->block_elems; i_block++) {
        for (uint32_t i = 0; i < n_rows; i++)
            f->unpack(&blocks[i],
                      from.ptr + i * from.stride_bytes + (uint64_t)i_block * f->block_bytes);
        pack_block(f, blocks, to);
        to += panel_block_bytes(f);
    }
}

static float value_of_e4m3(uint8_t code)
{
    uint32_t bits = (uint32_t)(code & 0x7f) << 20 | (uint32_t)(code & 0x80) << 24;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f * 0x1p120f;
}

static void dequantize_ours(const struct format *f, const struct block *b, float *out)
{
    float d = f32_from_f16(b->d);
    for (uint32_t i = 0; i < f->block_elems; i++) {
        if (f->head_bytes == 4)
            out[i] = b->d32 * value_of_e4m3(b->codes[i]);
        else if (f->head_bytes == 1)
            out[i] = ldexpf((float)mxfp4_values[b->codes[i]], b->zero - 128);
        else
            out[i] = d * (float)(b->codes[i] - b->zero);
    }
}

static void dequantize_block(const struct format *f, const struct block *b, float *out)
{
    if (f->head_bytes != 2 && !f->has_mins) {
        dequantize_ours(f, b, out);
        return;
    }
    float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
    for (uint32_t i = 0; i < f->block_elems; i++) {
        uint32_t g = i / f->group_elems;
        float code = f->signed_codes ? (float)(int8_t)b->codes[i] : (float)b->codes[i];
        float scale = f->signed_scales ? (float)(int8_t)b->scales[g] : (float)b->scales[g];
        float value = (f->has_scales ? d * scale : d) * (code - (float)f->offset);
        out[i] = f->has_mins ? value - dmin * (float)b->mins[g] : value;
    }
}

static float plain_value(enum dtype dtype, const uint8_t *p)
{
    uint32_t bits;
    float value;
    switch (dtype) {
    case DTYPE_F16:
        return f32_from_f16(read_u16(p));
    case DTYPE_BF16:
        bits = (uint32_t)read_u16(p) << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    default:
        memcpy(&value, p, sizeof value);
        return value;
    }
}

bool dequantize_row(enum dtype dtype, const void *row, uint32_t k, float *out)
{
    const struct format *f = format_of(dtype);
    if (!f || k % f->block_elems != 0)
        return false;
    const uint8_t *p = row;
    struct block b = {0};
    for (uint32_t i = 0; i < k; i += f->block_elems, p += f->block_bytes) {
        if (f->code_bits == 0) {
            out[i] = plain_value(dtype, p);
        } else {
            f->unpack(&b, p);
            dequantize_block(f, &b, out + i);
        }
    }
    return true;
}
