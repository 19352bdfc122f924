#pragma once
/* Declares the matrix product with integer dot products: weights stay codes, and activations
 * become 8-bit codes with a scale for each 32. For every output of a row, the groups of 32
 * inputs are added in order:
 *
 *   acc = fma(float(sum of q * x) * scale of w, scale of x, acc)
 *   acc = fma(-min of w, scale of x * float(sum of x), acc)         formats with mins
 *
 * Q6_K has groups of 16 inputs. For it, the first product is replaced by float(sum of 16) *
 * scale + float(sum of the next 16) * the next scale, fused. The bias is added last. Sums of
 * codes are exact, so the order of float operations is the same for any number of rows, any
 * division into tasks and any level. AVX2, AVX-512 and NEON give the same bits, with or without
 * VNNI, AMX, dotprod and i8mm. The scalar level rounds each product.
 *
 * A code of x is wrong by at most half a step, where a step is the group's largest element /
 * 127. llama.cpp's Q8_0 activations use the same scheme (docs/develop/decisions/0022).
 *
 * Weights lie in panels of 16 outputs with as many bytes as in pack.h. Only the codes of 32
 * inputs are ordered differently: a vector of 64 bytes is [output][4 inputs], as dot-product
 * instructions read it:
 *
 *   8 bits    u8[8][16][4], code + 128
 *   4 bits    u8[4][16][4], low halves are inputs 8 b + i, high halves are inputs 8 b + 4 + i
 *   5 bits    as 4 bits, then the fifth bits u8[16][4]; bit b of byte i belongs to input 4 b + i
 *   6 bits    as 4 bits, then two bits each, u8[2][16][4]; the scales of both groups come first */
#include "kernels/cpu/kernels.h"

enum { DOT_GROUP = 32, DOT_TILE = 16 };

/* `dot_group` holds the properties of 32 codes of a row. */
struct dot_group {
    float scale, sum; /* `sum`: scale * (sum of the codes) */
    int32_t neg;      /* minus the sum of the codes */
    int32_t neg_half[2];
};

/* `dot_rows` holds rows of x as codes, in consecutive tiles of 16, 8, 4, 2 and 1 rows
 * (dot_tile_rows). Within a tile the order is [group][row], for the codes of 32 inputs and for
 * their struct dot_group. Rows that only fill up a tile are zeros. */
struct dot_rows {
    uint32_t n_rows, k;
    int8_t *codes;
    struct dot_group *groups;
};

/* Returns the rows of the next tile when n_left rows are left. The last rows are covered either
 * by one smaller tile, filled up with zeros, or by two tiles. */
static inline uint32_t dot_tile_rows(uint32_t n_left)
{
    if (n_left >= 13)
        return DOT_TILE;
    if (n_left >= 5)
        return 8;
    return n_left >= 3 ? 4 : n_left;
}
/* Returns the number of rows in all tiles, including the rows that only fill up tiles. */
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
    const float *bias; /* `bias` has the shape [w->n], or is NULL */
    const struct dot_rows *x;
    float *out; /* `out` has the shape [n_rows][out_stride] */
    uint32_t out_stride, panel_begin, panel_end;
    struct panels_ahead next;
};

/* `dot_kernels` is a set of kernels for one way to add products of bytes. All sets give the same
 * sums. */
struct dot_kernels {
    const char *name; /* the set's level and extension; NULL when the set needs no extension */
    void (*linear)(const struct dot_task *t);
    /* Converts k numbers to codes. The codes of group g go to codes + g * code_stride, and the
     * group's properties go to groups[g * group_stride]. A group with an infinite number or a
     * NaN gets the scale NaN. */
    void (*quantise)(const float *x, uint32_t k, int8_t *codes, uint32_t code_stride,
                     struct dot_group *groups, uint32_t group_stride);
};
/* DOT_SETS lists all sets as do_(set, level), lowest first. */
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

/* DOT_FORMATS lists the formats that have kernels here. */
#define DOT_FORMATS(do_)                                                                           \
    do_(Q8_0) do_(Q4_0) do_(Q5_0) do_(Q4_1) do_(Q5_1) do_(Q4_K) do_(Q5_K) do_(Q6_K) do_(INT4)      \
        do_(INT8)
bool dot_has(enum dtype dtype);
/* Packs one panel into the layout above. The panel has pack_panel_bytes() bytes. */
void dot_pack_panel(struct weight *w, const struct weight_rows *rows, uint32_t i_panel);
/* Computes out[k] = scale * w[id][k]. `id` must be below w->n. */
void dot_embed_row(const struct weight *w, uint32_t id, float scale, float *out);
/* Converts the rows of tile i_tile (up to 16, from row 16 i_tile on) from floats. The caller
 * owns the memory of `to`: dot_n_places() times k codes, and times k / 32 groups. */
void dot_quantise_rows(const struct dot_kernels *kernels, const float *x, uint32_t x_stride,
                       const struct dot_rows *to, uint32_t i_tile);
