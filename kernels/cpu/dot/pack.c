/* Packs rows of weights from the layout of files into the panels of dot.h.
 * The CPU backend calls `dot_pack_panel` while it loads a matrix, for one panel at a time and
 * from several threads. Words of four rows are transposed first, so that a vector holds the same
 * four bytes of four outputs. Shifts and masks of whole vectors then move each bit to its place.
 * Each format has an entry of `maps`, and a copy of `pack_blocks` that the compiler specialises
 * for it. A panel's bytes are written once, front to back, and rows beyond w->n are zeros. */
#include <string.h>

#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/pack/pack.h"
#include "kernels/host/blocks.h"
#include "kernels/host/byte_vectors.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    QUARTER = 4,             /* number of outputs side by side in a vector */
    N_WORDS = DOT_GROUP / 4, /* number of words of a group's codes, with one byte for each code */
};

/* `codes` is the order of the codes in a block. */
enum codes {
    CODES_BYTES,
    CODES_HALVES, /* order: low halves of 16 bytes, then their high halves */
    CODES_RUN,    /* order: low half and high half of each byte in turn */
    CODES_K,      /* order: low halves of 32 bytes, then their high halves */
    /* order: low halves of 64 bytes, then their high halves; the upper two bits are stored
     * separately */
    CODES_6_K
};
/* `fifth` is the place of the fifth bits. FIFTH_WORD: 32 bits in one word, in order. FIFTH_K:
 * bit g of byte i belongs to input i of group g. */
enum fifth { FIFTH_NONE, FIFTH_WORD, FIFTH_K };
enum scales { SCALES_NONE, SCALES_K, SCALES_6_K };

/* `map` describes the layout of a format's block in a file. `*_at` are bytes from the block's
 * start; an absent part has 0 bytes. */
struct map {
    uint32_t bits, block_bytes, n_groups;
    enum codes codes;
    enum fifth fifth;
    enum scales scales;
    /* `more_at` is the place of the fifth bits, or of the fifth and sixth bits. */
    uint32_t codes_at, more_at, scales_at;
    uint32_t d_at, d_bytes, dmin_at, dmin_bytes, zero_at, zero_bytes;
};

static const struct map maps[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = {8, 34, 1, CODES_BYTES, .codes_at = 2, .d_bytes = 2},
    [DTYPE_Q4_0] = {4, 18, 1, CODES_HALVES, .codes_at = 2, .d_bytes = 2},
    [DTYPE_Q5_0] = {5, 22, 1, CODES_HALVES, FIFTH_WORD, .codes_at = 6, .more_at = 2, .d_bytes = 2},
    [DTYPE_Q4_1] = {4, 20, 1, CODES_HALVES, .codes_at = 4, .d_bytes = 2, .dmin_at = 2,
                    .dmin_bytes = 2},
    [DTYPE_Q5_1] = {5, 24, 1, CODES_HALVES, FIFTH_WORD, .codes_at = 8, .more_at = 4, .d_bytes = 2,
                    .dmin_at = 2, .dmin_bytes = 2},
    [DTYPE_Q4_K] = {4, 144, 8, CODES_K, FIFTH_NONE, SCALES_K, .codes_at = 16, .scales_at = 4,
                    .d_bytes = 2, .dmin_at = 2, .dmin_bytes = 2},
    [DTYPE_Q5_K] = {5, 176, 8, CODES_K, FIFTH_K, SCALES_K, .codes_at = 48, .more_at = 16,
                    .scales_at = 4, .d_bytes = 2, .dmin_at = 2, .dmin_bytes = 2},
    [DTYPE_Q6_K] = {6, 210, 8, CODES_6_K, FIFTH_NONE, SCALES_6_K, .more_at = 128, .scales_at = 192,
                    .d_at = 208, .d_bytes = 2},
    [DTYPE_INT4] = {4, 20, 1, CODES_RUN, .codes_at = 4, .d_bytes = 2, .zero_at = 2,
                    .zero_bytes = 1},
    [DTYPE_INT8] = {8, 37, 1, CODES_BYTES, .codes_at = 5, .d_bytes = 4, .zero_at = 4,
                    .zero_bytes = 1},
};

/* ---- codes ---- */

ALWAYS_INLINE vw load(const uint8_t *p)
{
    vw v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Swaps word i of v[k] with word k of v[i]. */
ALWAYS_INLINE void transpose_words(vw v[4])
{
    const vw a = __builtin_shufflevector(v[0], v[2], 0, 4, 1, 5),
             b = __builtin_shufflevector(v[0], v[2], 2, 6, 3, 7),
             c = __builtin_shufflevector(v[1], v[3], 0, 4, 1, 5),
             d = __builtin_shufflevector(v[1], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    v[1] = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    v[2] = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    v[3] = __builtin_shufflevector(b, d, 2, 6, 3, 7);
}

/* Reads n words of four outputs' blocks from `at` on: to[i] holds word i of the four outputs. */
ALWAYS_INLINE void read_words(const uint8_t *const blocks[QUARTER], uint32_t at, uint32_t n, vw *to)
{
    for (uint32_t k = 0; k < n; k += 4) {
        for (uint32_t i = 0; i < QUARTER; i++)
            to[k + i] = load(blocks[i] + at + 4 * k);
        transpose_words(to + k);
    }
}

/* Swaps the bits of `mask` with the bits that are `by` places higher. */
ALWAYS_INLINE vw swap_bits(vw v, uint32_t by, uint32_t mask)
{
    const vw t = (v >> by ^ v) & mask;
    return v ^ t ^ t << by;
}
/* Moves bit 4 b + i to bit 8 i + b. */
ALWAYS_INLINE vw turn_bits(vw v)
{
    v = swap_bits(v, 14, 0x0000cccc);
    v = swap_bits(v, 7, 0x00aa00aa);
    v = swap_bits(v, 2, 0x0c0c0c0c);
    return swap_bits(v, 1, 0x22222222);
}
/* Moves the half bytes 0 to 3 to the low halves of the bytes, and 4 to 7 to the high halves. */
ALWAYS_INLINE vw turn_halves(vw v)
{
    v = swap_bits(v, 8, 0x0000ff00);
    return swap_bits(v, 4, 0x00f000f0);
}

/* Returns word b of the codes of group j of the groups in t. Only the low half of each byte is
 * valid. */
ALWAYS_INLINE vw code_word(enum codes codes, const vw *t, uint32_t j, uint32_t b)
{
    if (codes == CODES_HALVES)
        return t[b % 4] >> b / 4 * 4;
    return codes == CODES_K ? t[b] >> j * 4 : t[j % 2 * N_WORDS + b] >> j / 2 * 4;
}

/* Returns the number of groups that share bytes. */
ALWAYS_INLINE uint32_t n_together(enum codes codes)
{
    return codes == CODES_6_K ? 4 : codes == CODES_K ? 2 : 1;
}

/* Writes the bits above bit 3 of the codes of group j, for four outputs. */
ALWAYS_INLINE void put_more(const struct map *m, const vw more[N_WORDS], uint32_t j, uint8_t *to)
{
    vw out[2] = {{0}};
    for (uint32_t b = 0; m->fifth == FIFTH_K && b < N_WORDS; b++)
        out[0] |= (more[b] >> j & 0x01010101) << b;
    for (uint32_t b = 0; m->bits == 6 && b < N_WORDS; b++)
        out[b / 4] |= (more[b] >> 2 * j & 0x03030303) << b % 4 * 2;
    for (uint32_t i = 0; i < m->bits - 4; i++)
        memcpy(to + i * 64, &out[i], sizeof *out);
}

/* Writes the codes of the groups that share bytes, from group g on, for four outputs. Groups are
 * group_bytes apart in `to`. */
ALWAYS_INLINE void put_codes(const struct map *m, const uint8_t *const blocks[QUARTER], uint32_t g,
                             uint8_t *to, uint32_t group_bytes)
{
    const uint32_t n = n_together(m->codes), n_out = m->bits == 8 ? 8 : 4;
    const uint32_t n_read = m->bits == 8 ? N_WORDS : 4 * n;
    vw t[16], more[N_WORDS];
    read_words(blocks, m->codes_at + g / n * n_read * 4, n_read, t);
    if (m->bits == 6)
        read_words(blocks, m->more_at + g / n * N_WORDS * 4, N_WORDS, more);
    if (m->fifth == FIFTH_K)
        read_words(blocks, m->more_at, N_WORDS, more);
    for (uint32_t b = 0; m->fifth == FIFTH_K && b < N_WORDS; b++)
        more[b] >>= g;
    for (uint32_t j = 0; j < n; j++, to += group_bytes) {
        for (uint32_t i = 0; i < n_out; i++) {
            vw out = m->codes == CODES_BYTES ? t[i] ^ 0x80808080
                     : m->codes == CODES_RUN
                         ? turn_halves(t[i])
                         : (code_word(m->codes, t, j, 2 * i) & 0x0f0f0f0f) |
                               (code_word(m->codes, t, j, 2 * i + 1) & 0x0f0f0f0f) << 4;
            memcpy(to + i * 64, &out, sizeof out);
        }
        if (m->fifth == FIFTH_WORD) {
            vw fifth;
            for (uint32_t i = 0; i < QUARTER; i++)
                memcpy((uint8_t *)&fifth + 4 * i, blocks[i] + m->more_at, 4);
            fifth = turn_bits(fifth);
            memcpy(to + n_out * 64, &fifth, sizeof fifth);
        } else if (m->bits == 5 || m->bits == 6) {
            put_more(m, more, j, to + n_out * 64);
        }
    }
}

/* ---- blocks ---- */

ALWAYS_INLINE uint8_t *put_head(const struct map *m, const uint8_t *const blocks[PANEL_N],
                                uint8_t *to)
{
    uint8_t *dmin = to + PANEL_N * m->d_bytes, *zero = dmin + PANEL_N * m->dmin_bytes;
    for (uint32_t i = 0; i < PANEL_N; i++) {
        memcpy(to + i * m->d_bytes, blocks[i] + m->d_at, m->d_bytes);
        memcpy(dmin + i * m->dmin_bytes, blocks[i] + m->dmin_at, m->dmin_bytes);
        memcpy(zero + i * m->zero_bytes, blocks[i] + m->zero_at, m->zero_bytes);
    }
    return zero + PANEL_N * m->zero_bytes;
}

/* Returns eight scales and eight mins of six bits from twelve bytes. */
ALWAYS_INLINE vb read_scales_k(const uint8_t *p)
{
    uint32_t w[3];
    memcpy(w, p, sizeof w);
    return (vb)(vw){w[0] & 0x3f3f3f3f, (w[2] & 0x0f0f0f0f) | (w[0] >> 6 & 0x03030303) << 4,
                    w[1] & 0x3f3f3f3f, (w[2] >> 4 & 0x0f0f0f0f) | (w[1] >> 6 & 0x03030303) << 4};
}

/* Reads the scales: to[i] holds scale i of the 16 outputs. With SCALES_K, entries 8 to 15 are
 * mins. */
ALWAYS_INLINE void read_scales(const struct map *m, const uint8_t *const blocks[PANEL_N], vb to[16])
{
    for (uint32_t i = 0; i < PANEL_N; i++)
        to[i] = m->scales == SCALES_K ? read_scales_k(blocks[i] + m->scales_at)
                                      : (vb)load(blocks[i] + m->scales_at);
    transpose_bytes(to);
}

/* Writes the two scales of each group; groups are group_bytes apart in `to`. */
ALWAYS_INLINE void put_scales(const struct map *m, const uint8_t *const blocks[PANEL_N],
                              uint8_t *to, uint32_t group_bytes)
{
    vb scales[16];
    read_scales(m, blocks, scales);
    for (uint32_t g = 0; g < m->n_groups; g++, to += group_bytes)
        for (uint32_t i = 0; i < 2; i++)
            memcpy(to + i * PANEL_N, &scales[m->scales == SCALES_K ? 8 * i + g : 2 * g + i],
                   PANEL_N);
}

/* Packs one block of each of the 16 rows into `to`. Returns the address behind the packed
 * blocks. */
ALWAYS_INLINE uint8_t *pack_block(const struct map *m, const uint8_t *const blocks[PANEL_N],
                                  uint64_t ahead, uint8_t *to)
{
    const uint32_t scales_bytes = m->scales == SCALES_NONE ? 0 : 2 * PANEL_N;
    const uint32_t group_bytes = scales_bytes + m->bits * 64;
    const uint32_t n = n_together(m->codes), read_bytes = m->block_bytes / m->n_groups * n;
    pack_ask_to_write(to, m->n_groups * group_bytes);
    to = put_head(m, blocks, to);
    if (scales_bytes > 0)
        put_scales(m, blocks, to, group_bytes);
    for (uint32_t g = 0; g < m->n_groups; g += n) {
        for (uint32_t i = 0; i < PANEL_N; i += QUARTER) {
            for (uint32_t k = 0; k < QUARTER; k++)
                pack_ask_to_read(blocks[i + k], ahead + g / n * read_bytes, read_bytes);
            put_codes(m, blocks + i, g, to + g * group_bytes + scales_bytes + i * 4, group_bytes);
        }
    }
    return to + m->n_groups * group_bytes;
}

ALWAYS_INLINE void pack_blocks(const struct map *m, const struct weight_rows *rows, uint32_t n_rows,
                               uint32_t n_blocks, uint8_t *to)
{
    static const uint8_t zeros[256]; /* stand-in for the blocks of rows beyond n_rows */
    const uint32_t ahead = pack_read_ahead(m->block_bytes);
    const uint8_t *blocks[PANEL_N];
    for (uint32_t i = 0; i < PANEL_N; i++)
        blocks[i] = i < n_rows ? rows->ptr + i * rows->stride_bytes : zeros;
    for (; n_blocks > 0; n_blocks--) {
        /* beyond the row's end, the prefetch continues in the next panel */
        const bool last = n_blocks * m->block_bytes <= ahead;
        to = pack_block(m, blocks, ahead + (last ? (PANEL_N - 1) * rows->stride_bytes : 0), to);
        for (uint32_t i = 0; i < n_rows; i++)
            blocks[i] += m->block_bytes;
    }
}

#define PACK_FORMAT(name)                                                                          \
    static void pack_##name(const struct weight_rows *rows, uint32_t n_rows, uint32_t n_blocks,    \
                            uint8_t *to)                                                           \
    {                                                                                              \
        pack_blocks(&maps[DTYPE_##name], rows, n_rows, n_blocks, to);                              \
    }
DOT_FORMATS(PACK_FORMAT)

typedef void pack_fn(const struct weight_rows *rows, uint32_t n_rows, uint32_t n_blocks,
                     uint8_t *to);

void dot_pack_panel(struct weight *w, const struct weight_rows *rows, uint32_t i_panel)
{
#define PACKS(name) [DTYPE_##name] = pack_##name,
    static pack_fn *const packs[DTYPE_COUNT] = {DOT_FORMATS(PACKS)};
    const uint32_t first = i_panel * PANEL_N;
    const struct weight_rows from = {rows->ptr + first * rows->stride_bytes, rows->stride_bytes};
    packs[w->dtype](&from, w->n - first < PANEL_N ? w->n - first : PANEL_N,
                    w->k / format_of(w->dtype)->block_elems,
                    (uint8_t *)w->data + i_panel * pack_panel_bytes(w->dtype, w->k));
}
