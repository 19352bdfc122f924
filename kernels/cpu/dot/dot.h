#pragma once
/* The matrix product with integer dot products: weights stay codes, activations become codes of
 * eight bits, 32 of them with a scale. For every output of a row, in groups of 32 inputs in order:
 *
 *   acc = fma(float(sum of q * x) * scale of w, scale of x, acc)
 *   acc = fma(-min of w, scale of x * float(sum of x), acc)         formats with mins
 *
 * (Q6_K, whose groups have 16 inputs: float(sum of 16) * scale + float(sum of the next 16) * the
 * next scale, fused, in place of the first product), then the bias is added. Sums of codes are
 * exact, so that the order of floats is the same for any number of rows, any cut and any level:
 * AVX2, AVX-512 and NEON, with VNNI, AMX, dotprod, i8mm and without, give the same bits;
 * scalar rounds each product.
 *
 * A code of x is wrong by half a step at most, a step being the group's largest element / 127: the
 * scheme of llama.cpp's Q8_0 activations (docs/develop/decisions/0022).
 *
 * Weights lie as in pack.h, panels of 16 outputs with the same bytes in all, but for the codes of
 * 32 inputs, whose vectors of 64 bytes are [output][4 inputs], as dot-product instructions read
 * them:
 *
 *   8 bits    u8[8][16][4], code + 128
 *   4 bits    u8[4][16][4], low halves the inputs 8 b + i, high halves 8 b + 4 + i
 *   5 bits    the same, then fifth bits u8[16][4], bit b of byte i the input 4 b + i
 *   6 bits    the same as 4, then two bits each, u8[2][16][4]; scales of both groups lead */
#include "kernels/cpu/kernels.h"

enum { DOT_GROUP = 32, DOT_TILE = 16 };

/* Of 32 codes of a row. */
struct dot_group {
    float scale, sum; /* sum: of what the codes stand for */
    int32_t neg;      /* -(sum of the codes) */
    int32_t neg_half[2];
};

/* Rows of x in tiles of 16, 8, 4, 2 and 1 rows (dot_tile_rows), one behind the other; in a tile
 * [group][row]: codes of 32 inputs, and their struct dot_group. Rows that fill a tile up are zeros.
 */
struct dot_rows {
    uint32_t n_rows, k;
    int8_t *codes;
    struct dot_group *groups;
};

/* Rows of the tile that begins where so many rows are left. What is not a whole tile is a whole one
 * of fewer rows, or two. */
static inline uint32_t dot_tile_rows(uint32_t n_left)
{
    if (n_left >= 13)
        return DOT_TILE;
    if (n_left >= 5)
        return 8;
    return n_left >= 3 ? 4 : n_left;
}
/* Places for rows, those that fill tiles up included. */
static inline uint32_t dot_n_places(uint32_t n_rows)
{
    uint32_t n = n_rows / DOT_TILE * DOT_TILE, left = n_rows % DOT_TILE;
    while (left > 0) {
        uint32_t tile = dot_tile_rows(left);
        n += tile;
        left -= tile < left ? tile : left;
    }
    return n;
}

struct dot_task {
    const struct weight *w;
    const float *bias; /* [w->n] or NULL */
    const struct dot_rows *x;
    float *out; /* [n_rows][out_stride] */
    uint32_t out_stride, panel_begin, panel_end;
    struct panels_ahead next;
};

/* One set for each way to add products of bytes; all give the same sums. */
struct dot_kernels {
    const char *name; /* of the level and what it needs beside it; NULL: nothing */
    void (*linear)(const struct dot_task *t);
    /* k numbers as codes: those of group g at codes + g * code_stride, its numbers at
     * groups[g * group_stride]. A group with an infinite number or a NaN has the scale NaN. */
    void (*quantise)(const float *x, uint32_t k, int8_t *codes, uint32_t code_stride,
                     struct dot_group *groups, uint32_t group_stride);
};
/* do_(set, level), lowest first. */
#ifdef __aarch64__
#define DOT_SETS(do_)                                                                              \
    do_(scalar, SCALAR) do_(neon, NEON) do_(neon_dotprod, NEON) do_(neon_i8mm, NEON)
#else
#define DOT_SETS(do_)                                                                              \
    do_(scalar, SCALAR) do_(avx2, AVX2) do_(avx2_vnni, AVX2) do_(avx512, AVX512)                   \
        do_(avx512_vnni, AVX512) do_(avx512_amx, AVX512)
#endif
#define DOT_DECLARE(set, level) extern const struct dot_kernels dot_kernels_##set;
DOT_SETS(DOT_DECLARE)
#undef DOT_DECLARE

/* What there are kernels for. */
#define DOT_FORMATS(do_)                                                                           \
    do_(Q8_0) do_(Q4_0) do_(Q5_0) do_(Q4_1) do_(Q5_1) do_(Q4_K) do_(Q5_K) do_(Q6_K) do_(INT4)      \
        do_(INT8)
bool dot_has(enum dtype dtype);
/* As pack_panel; n_bytes as pack_panel_bytes. */
void dot_pack_panel(struct weight *w, const struct weight_rows *rows, uint32_t i_panel);
/* out[k] = scale * w[id][k]; id < w->n. */
void dot_embed_row(const struct weight *w, uint32_t id, float scale, float *out);
/* Rows 16 i_tile and on, 16 of them or what is there, from x as floats; `to` has its memory:
 * n_places times k codes, and times k / 32 groups. */
void dot_quantise_rows(const struct dot_kernels *kernels, const float *x, uint32_t x_stride,
                       const struct dot_rows *to, uint32_t i_tile);
