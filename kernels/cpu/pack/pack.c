/* Packs rows of weights into the panels of pack.h. The codes of 16 rows are transposed, 16 x 16
 * bytes at a time, and joined again into fewer bits. */
#include "kernels/cpu/pack/pack.h"

#include <string.h>

#include "kernels/cpu/pack/plain.h"
#include "kernels/host/blocks.h"
#include "kernels/host/byte_vectors.h"

struct pack_head pack_head_of(const struct format *f)
{
    static const struct pack_head heads[VALUES_COUNT] = {
        [VALUES_OFFSET] = {2, 0, 0},     [VALUES_MIN] = {2, 2, 0},   [VALUES_SCALED] = {2, 0, 0},
        [VALUES_SCALED_MIN] = {2, 2, 0}, [VALUES_ZERO] = {2, 0, 1},  [VALUES_ZERO_D32] = {4, 0, 1},
        [VALUES_E4M3] = {4, 0, 0},       [VALUES_TABLE] = {2, 0, 0}, [VALUES_E2M1] = {0, 0, 1},
    };
    return heads[f->values];
}
static bool has_scales(const struct format *f)
{
    return f->values == VALUES_SCALED || f->values == VALUES_SCALED_MIN;
}
static bool has_mins(const struct format *f)
{
    return f->values == VALUES_SCALED_MIN;
}

static uint64_t panel_block_bytes(const struct format *f)
{
    if (f->values == VALUES_PLAIN)
        return (uint64_t)f->block_bytes * PANEL_N;
    struct pack_head h = pack_head_of(f);
    uint32_t per_group = (has_mins(f) && !f->scales_are_nibbles) + has_scales(f);
    return PANEL_N * (h.d + h.dmin + h.zero + f->block_elems / f->group_elems * per_group) +
           2ull * f->block_elems * f->code_bits;
}

uint64_t pack_panel_bytes(enum dtype dtype, uint32_t k)
{
    const struct format *f = format_of(dtype);
    if (!f || k % f->block_elems != 0)
        return 0;
    return k / f->block_elems * panel_block_bytes(f);
}

/* Transposes 16 codes from i_k on: to[k] holds code k of each of the 16 rows. */
static void transpose_codes(vb to[16], const struct block rows[PANEL_N], uint32_t i_k)
{
    for (uint32_t i = 0; i < PANEL_N; i++)
        memcpy(&to[i], rows[i].codes + i_k, 16);
    transpose_bytes(to);
}

static uint8_t *put(uint8_t *to, vb v)
{
    memcpy(to, &v, sizeof v);
    return to + sizeof v;
}

/* Moves the bits of `mask` in each byte from bit `from` on to bit `to` on. The function shifts
 * words, because processors have no shifts of bytes. */
static inline vb move_bits(vb v, uint32_t mask, int from, int to)
{
    return (vb)((((vw)v >> from) & mask * 0x01010101) << to);
}

/* Writes two bits of each of eight k, from bit `from` of each code on. A byte holds four k. */
static uint8_t *put_pairs_of_bits(uint8_t *to, const vb c[8], int from)
{
    for (int i = 0; i < 8; i += 4)
        to = put(to, move_bits(c[i], 3, from, 0) | move_bits(c[i + 1], 3, from, 2) |
                         move_bits(c[i + 2], 3, from, 4) | move_bits(c[i + 3], 3, from, 6));
    return to;
}

/* Writes the codes of eight k of 16 outputs. */
static uint8_t *put_codes(uint8_t *to, const vb c[8], uint32_t code_bits)
{
    if (code_bits == 8) {
        memcpy(to, c, 128);
        return to + 128;
    }
    int low_bits = code_bits < 4 ? 2 : 4;
    if (low_bits == 2)
        to = put_pairs_of_bits(to, c, 0);
    for (int i = 0; low_bits == 4 && i < 4; i++)
        to = put(to, move_bits(c[2 * i], 15, 0, 0) | move_bits(c[2 * i + 1], 15, 0, 4));
    if (code_bits == 3 || code_bits == 5) {
        vb high = {0};
        for (int i = 0; i < 8; i++)
            high |= move_bits(c[i], 1, low_bits, i);
        to = put(to, high);
    }
    return code_bits == 6 ? put_pairs_of_bits(to, c, 4) : to;
}

uint8_t *pack_put_head(const struct format *f, const struct block rows[PANEL_N], uint8_t *to)
{
    struct pack_head h = pack_head_of(f);
    for (uint32_t i = 0; i < PANEL_N; i++) {
        if (h.d == 4)
            memcpy(to + 4 * i, &rows[i].d32, 4);
        else if (h.d == 2)
            memcpy(to + 2 * i, &rows[i].d, 2);
        if (h.dmin)
            memcpy(to + PANEL_N * h.d + 2 * i, &rows[i].dmin, 2);
        if (h.zero)
            to[PANEL_N * (h.d + h.dmin) + i] = rows[i].zero;
    }
    return to + PANEL_N * (h.d + h.dmin + h.zero);
}

static void pack_block(const struct format *f, const struct block rows[PANEL_N], uint8_t *to)
{
    bool joined = f->scales_are_nibbles;
    to = pack_put_head(f, rows, to);
    for (uint32_t i_group = 0; i_group < f->block_elems / f->group_elems; i_group++) {
        for (uint32_t i = 0; has_scales(f) && i < PANEL_N; i++)
            *to++ = (uint8_t)(rows[i].scales[i_group] | (joined ? rows[i].mins[i_group] << 4 : 0));
        for (uint32_t i = 0; has_mins(f) && !joined && i < PANEL_N; i++)
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
    if (f->values == VALUES_PLAIN) {
        pack_plain(to, &from, n_rows, w->k,
                   w->dtype == DTYPE_BF16 ? PACK_PAIRS
                   : f->block_bytes == 4  ? PACK_WORDS
                                          : PACK_HALVES);
        return;
    }
    struct block blocks[PANEL_N];
    memset(blocks, 0, sizeof blocks); /* rows beyond n stay zero */
    const uint64_t block_bytes = panel_block_bytes(f);
    for (uint32_t i_block = 0; i_block < w->k / f->block_elems; i_block++, to += block_bytes) {
        pack_ask_to_write(to, (uint32_t)block_bytes);
        for (uint32_t i = 0; i < n_rows; i++) {
            const uint8_t *block =
                from.ptr + i * from.stride_bytes + (uint64_t)i_block * f->block_bytes;
            pack_ask_to_read(block, pack_read_ahead(f->block_bytes), f->block_bytes);
            f->unpack(&blocks[i], block);
        }
        pack_block(f, blocks, to);
    }
}
