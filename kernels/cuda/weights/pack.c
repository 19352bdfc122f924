/* Packs rows of weights into row tiles in the layout of layout.h, on the host. backend/pack.c
 * calls `gpu_pack_tile` from several threads while a model is loaded. `rows` have the file's
 * layout, and the tile is written to a pinned buffer. Plain numbers become bfloat16. Codes are
 * unpacked by kernels/host/blocks.c, widened to 8 bits if the format needs that, and put in the
 * order of mma.m16n8k16. Scales follow the codes. All tile_bytes of a tile are written; rows
 * beyond n and inputs beyond k become zeros. Functions keep no state. */
#include "kernels/cuda/weights/pack.h"

#include <string.h>

#include "kernels/host/blocks.h"
#include "kernels/host/f16.h"
#include "kernels/host/narrow.h"

enum { STEP = 16 };

/* ---- plain numbers ---- */

/* Converts a half to bfloat16. The function has no branch, so that compilers vectorize loops
 * over it. */
static uint16_t bf16_from_f16(uint16_t h)
{
    uint32_t abs = (uint32_t)(h & 0x7fffu) << 13;
    /* the product is also right for subnormals */
    uint32_t bits = narrow_bits(narrow_float(abs) * 0x1p112f);
    bits |= abs >= 0x0f800000u ? 0x7f800000u : 0; /* these are infinities and NaN */
    return bf16_from_f32(narrow_float(bits | (uint32_t)(h & 0x8000u) << 16));
}

static void pack_plain_row(enum dtype dtype, const uint8_t *from, uint32_t k, uint16_t *to)
{
    if (dtype == DTYPE_BF16)
        memcpy(to, from, (size_t)k * sizeof *to);
    for (uint32_t i = 0; dtype == DTYPE_F16 && i < k; i++) {
        uint16_t half;
        memcpy(&half, from + (size_t)i * sizeof half, sizeof half);
        to[i] = bf16_from_f16(half);
    }
    for (uint32_t i = 0; dtype == DTYPE_F32 && i < k; i++) {
        float single;
        memcpy(&single, from + (size_t)i * sizeof single, sizeof single);
        to[i] = bf16_from_f32(single);
    }
}

static void pack_plain_tile(const struct gpu_matrix *m, enum dtype dtype,
                            const struct weight_rows *from, uint32_t n_rows, uint8_t *to)
{
    size_t row_bytes = (size_t)gpu_padded_k(GPU_BF16, m->k) * 2, used = (size_t)m->k * 2;
    if (dtype == DTYPE_BF16 && used == row_bytes && from->stride_bytes == used) {
        memcpy(to, from->ptr, n_rows * used);
    } else {
        for (uint32_t i = 0; i < n_rows; i++) {
            uint16_t *row = (uint16_t *)(void *)(to + i * row_bytes);
            pack_plain_row(dtype, from->ptr + i * from->stride_bytes, m->k, row);
            memset((uint8_t *)row + used, 0, row_bytes - used);
        }
    }
    memset(to + n_rows * row_bytes, 0, (GPU_TILE_N - n_rows) * row_bytes);
}

/* ---- codes ---- */

/* Replaces codes by the 8-bit numbers that they stand for. */
static void widen_codes(const struct format *f, struct block *b)
{
    for (uint32_t i = 0; f->values == VALUES_TABLE && i < f->block_elems; i++)
        b->codes[i] = (uint8_t)f->table[b->codes[i]];
    for (uint32_t i = 0; f->values != VALUES_TABLE && f->offset && i < f->block_elems; i++)
        b->codes[i] = (uint8_t)(b->codes[i] - f->offset);
}

/* Returns a lane's word for 16 inputs: eight codes of 4 bits. */
static uint32_t word_of_nibbles(const uint8_t *low, const uint8_t *high, uint32_t t)
{
    uint32_t i = 2 * t, word = 0;
    word |= (uint32_t)(low[i] | high[i] << 4 | low[i + 8] << 8 | high[i + 8] << 12);
    word |= (uint32_t)(low[i + 1] | high[i + 1] << 4 | low[i + 9] << 8) << 16;
    return word | (uint32_t)high[i + 9] << 28;
}
/* Returns four codes of 8 bits: inputs i and i + 1 of both rows. */
static uint32_t word_of_bytes(const uint8_t *low, const uint8_t *high, uint32_t i)
{
    return low[i] | (uint32_t)high[i] << 8 | (uint32_t)low[i + 1] << 16 |
           (uint32_t)high[i + 1] << 24;
}

/* Writes 16 inputs from k on of 16 rows. These inputs begin at i_code of their blocks. */
static void put_step(const struct gpu_matrix *m, const struct block *rows, uint32_t i_code,
                     uint32_t k, uint8_t *tile_of_rows)
{
    bool nibbles = gpu_code_bits(m->format) == 4;
    uint32_t tile_k = gpu_tile_k(m->format), j = k % tile_k / STEP;
    uint32_t *tile = (uint32_t *)(void *)(tile_of_rows + k / tile_k * 512);
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint8_t *low = rows[lane / 4].codes + i_code, t = lane % 4;
        const uint8_t *high = rows[lane / 4 + 8].codes + i_code;
        if (nibbles) {
            tile[lane * 4 + j] = word_of_nibbles(low, high, t);
        } else {
            tile[lane * 4 + 2 * j] = word_of_bytes(low, high, 2u * t);
            tile[lane * 4 + 2 * j + 1] = word_of_bytes(low, high, 2u * t + 8);
        }
    }
}

/* ---- scales ---- */

/* `scale` is the meaning of a code in a group: value = scale * (code - zero) + offset. */
struct scale {
    float scale, offset, zero;
};
static struct scale scale_of(const struct format *f, const struct block *b, uint32_t g)
{
    float d = f32_from_f16(b->d), dmin = f32_from_f16(b->dmin);
    float scale = f->signed_scales ? (float)(int8_t)b->scales[g] : (float)b->scales[g];
    switch (f->values) {
    case VALUES_OFFSET:
        return (struct scale){d, 0, f->offset};
    case VALUES_MIN:
        return (struct scale){d, dmin, 0};
    case VALUES_SCALED:
        return (struct scale){d * scale, 0, f->offset};
    case VALUES_SCALED_MIN:
        return (struct scale){d * scale, -(dmin * (float)b->mins[g]), 0};
    case VALUES_ZERO:
        return (struct scale){d, 0, b->zero};
    case VALUES_ZERO_D32:
        return (struct scale){b->d32, -b->d32 * (float)(int8_t)b->zero, 0};
    case VALUES_E4M3:
        return (struct scale){b->d32, 0, 0};
    case VALUES_TABLE:
        return (struct scale){d, 0, 0};
    case VALUES_E2M1:
    case VALUES_PLAIN:
    case VALUES_COUNT:
        break;
    }
    return (struct scale){0};
}

static void put_scale(const struct gpu_matrix *m, const struct scale *s, uint8_t exponent,
                      uint8_t *to)
{
    uint16_t half[2] = {f16_from_f32(s->scale), 0};
    switch (m->format) {
    case GPU_U4: /* zeros are at most 16, so bfloat16 holds 128 + zero exactly */
        half[1] = bf16_from_f32(-(128.0f + (s->zero < 128 ? s->zero : 128.0f)));
        memcpy(to, half, sizeof half);
        break;
    case GPU_U4_MIN:
        half[1] = f16_from_f32(s->offset);
        memcpy(to, half, sizeof half);
        break;
    case GPU_I8_MIN:
        memcpy(to + 4, &s->offset, 4);
        memcpy(to, &s->scale, 4);
        break;
    case GPU_I8:
    case GPU_F8:
        memcpy(to, &s->scale, 4);
        break;
    case GPU_MX4:
        *to = exponent;
        break;
    case GPU_BF16:
    case GPU_FORMAT_COUNT:
        break;
    }
}

/* Writes the scales of the groups that begin in the block at input k. */
static void put_scales(const struct gpu_matrix *m, const struct format *f, const struct block *rows,
                       uint32_t k, uint8_t *scales)
{
    uint32_t bytes = gpu_scale_bytes(m->format);
    for (uint32_t at = 0; at < f->block_elems; at += f->group_elems) {
        if ((k + at) % m->group != 0)
            continue;
        uint8_t *to = scales + (size_t)((k + at) / m->group) * GPU_TILE_N * bytes;
        for (uint32_t i = 0; i < GPU_TILE_N; i++, to += bytes) {
            struct scale s = scale_of(f, &rows[i], at / f->group_elems);
            put_scale(m, &s, rows[i].zero, to);
        }
    }
}

/* Clears the last tile of codes, which may reach beyond k. */
static void clear_end(const struct gpu_matrix *m, uint8_t *to)
{
    uint32_t end = m->k / gpu_tile_k(m->format) * 512;
    memset(to + end, 0, gpu_codes_bytes(m->format, m->k) - end);
}

static void pack_coded_tile(const struct gpu_matrix *m, const struct format *f,
                            const struct weight_rows *from, uint32_t n_rows, uint8_t *to)
{
    struct block blocks[GPU_TILE_N];
    uint8_t *scales = to + gpu_codes_bytes(m->format, m->k);
    bool widen = gpu_code_bits(m->format) == 8 && f->code_bits < 8;
    memset(blocks, 0, sizeof blocks); /* rows beyond n stay zero */
    memset(scales, 0, (size_t)(to + m->tile_bytes - scales));
    clear_end(m, to);
    for (uint32_t k = 0; k < m->k; k += f->block_elems) {
        for (uint32_t i = 0; i < n_rows; i++) {
            f->unpack(&blocks[i], from->ptr + i * from->stride_bytes +
                                      (uint64_t)(k / f->block_elems) * f->block_bytes);
            if (widen)
                widen_codes(f, &blocks[i]);
        }
        for (uint32_t at = 0; at < f->block_elems; at += STEP)
            put_step(m, blocks, at, k + at, to);
        put_scales(m, f, blocks, k, scales);
    }
}

void gpu_pack_tile(const struct gpu_matrix *m, enum dtype dtype, const struct weight_rows *rows,
                   uint32_t i_tile, uint8_t *to)
{
    const struct format *f = format_of(dtype);
    uint32_t first = i_tile * GPU_TILE_N;
    uint32_t n_rows = m->n - first < GPU_TILE_N ? m->n - first : GPU_TILE_N;
    struct weight_rows from = {rows->ptr + first * rows->stride_bytes, rows->stride_bytes};
    if (f->values == VALUES_PLAIN)
        pack_plain_tile(m, dtype, &from, n_rows, to);
    else
        pack_coded_tile(m, f, &from, n_rows, to);
}
