#pragma once
/* Computes the product of dot_impl.h with AMX, for tiles of 16 rows. A panel's codes are
 * unpacked once for all rows, CHUNK_GROUPS groups at a time, and one tile product gives the sums
 * of a group. The vector units then scale and add these sums in the order of dot.h. For each row
 * and group, the vector units do a conversion, a product and a sum, and one more operation in
 * formats with mins. They are the bottleneck. */
#include "kernels/cpu/dot/amx.h"

/* AMX_TILES_MIN is the least number of row tiles that are multiplied with AMX. With fewer tiles,
 * unpacking costs more than the tile products gain when the weights come from memory, because no
 * tile product runs meanwhile. */
enum { CHUNK_GROUPS = 32, CHUNK_TILES = 8, AMX_TILES_MIN = 4 };

/* `amx_chunk` holds unpacked groups of one panel. Fields that a format does not have stay
 * uninitialised. */
struct amx_chunk {
    uint8_t codes[CHUNK_GROUPS][DOT_GROUP / 4 * VQ_BYTES]; /* signed codes of the weights */
    vf scale[CHUNK_GROUPS], second[CHUNK_GROUPS], neg_min[CHUNK_GROUPS];
};
/* `amx_sums` holds the sums of a group, or of its two halves. */
struct amx_sums {
    _Alignas(64) int32_t of[2][DOT_TILE][PANEL_N];
};

KERNEL_INLINE const uint8_t *amx_unpack(enum dtype t, const uint8_t *p, uint32_t n_groups,
                                        struct amx_chunk *c)
{
    /* subtracting 128 maps 0 .. 255 to -128 .. 127 */
    const vq offset = _mm512_set1_epi8((char)dot_offset(t));
    struct dot_scales s;
    for (uint32_t i = 0, end; i < n_groups;) {
        p = fmt_begin_block(t, p, &s.s);
        for (end = i + fmt_block_elems(t) / DOT_GROUP; i < end; i++) {
            vq w[8];
            p = dot_begin_group(t, p, &s);
            for (uint32_t at = 0; at < fmt_code_bits(t) * VQ_BYTES; at += VQ_BYTES)
                __builtin_prefetch((const void *)((uintptr_t)p + DOT_PREFETCH + at));
            p = dot_codes(t, p, w);
            KERNEL_UNROLL
            for (uint32_t b = 0; b < 8; b++) {
                _mm512_storeu_si512(c->codes[i] + (size_t)b * VQ_BYTES,
                                    _mm512_sub_epi8(w[b], offset));
            }
            c->scale[i] = s.s.scale;
            if (dot_has_halves(t))
                c->second[i] = s.second;
            if (dot_has_min(t))
                c->neg_min[i] = s.s.neg_min;
        }
    }
    return p;
}

/* AMX_START and AMX_FINISH are the two steps of a group's sums. AMX_FINISH waits for AMX_START,
 * so a step of the other register set is between them. */
#define AMX_START(t, turn, x, codes)                                                               \
    do {                                                                                           \
        AMX_LOAD(AMX_ROWS_##turn, x, DOT_GROUP);                                                   \
        AMX_LOAD(AMX_CODES_##turn, codes, VQ_BYTES);                                               \
        AMX_MULTIPLY(AMX_SUMS_##turn, AMX_ROWS_##turn, AMX_CODES_##turn);                          \
        if (dot_has_halves(t)) {                                                                   \
            AMX_LOAD(AMX_ROWS_##turn, (x) + DOT_GROUP / 2, DOT_GROUP);                             \
            AMX_LOAD(AMX_CODES_##turn, (codes) + 4 * VQ_BYTES, VQ_BYTES);                          \
            AMX_MULTIPLY(AMX_SECOND_SUMS_##turn, AMX_ROWS_##turn, AMX_CODES_##turn);               \
        }                                                                                          \
    } while (0)
#define AMX_FINISH(t, turn, sums)                                                                  \
    do {                                                                                           \
        AMX_STORE(AMX_SUMS_##turn, (sums)->of[0], VQ_BYTES);                                       \
        if (dot_has_halves(t))                                                                     \
            AMX_STORE(AMX_SECOND_SUMS_##turn, (sums)->of[1], VQ_BYTES);                            \
    } while (0)

KERNEL_INLINE vf amx_sum(const int32_t sums[PANEL_N])
{
    return vi_to_f(_mm512_load_si512(sums));
}
/* Completes dot_step(): scales the sums of a group and adds them to acc. */
KERNEL_INLINE void amx_add(enum dtype t, vf *acc, const struct amx_sums *sums,
                           const struct amx_chunk *c, uint32_t i_group, const struct dot_group *g)
{
    const vf scale = c->scale[i_group];
    DOT_UNROLL
    for (uint32_t r = 0; r < DOT_TILE; r++) {
        vf sum = vf_mul(amx_sum(sums->of[0][r]), scale);
        if (dot_has_halves(t))
            sum = vf_fma(amx_sum(sums->of[1][r]), c->second[i_group], sum);
        acc[r] = vf_fma(sum, vf_set1(g[r].scale), acc[r]);
        if (dot_has_min(t))
            acc[r] = vf_fma(c->neg_min[i_group], vf_set1(g[r].sum), acc[r]);
    }
}

/* Multiplies one tile of rows by the chunk. While the sums of one group are added, the sums of
 * the next group are stored, and the group after that is multiplied. */
KERNEL_INLINE void amx_tile(enum dtype t, const struct amx_chunk *c, uint32_t n, const int8_t *x,
                            const struct dot_group *g, vf *out)
{
    const size_t step = (size_t)DOT_TILE * DOT_GROUP;
    struct amx_sums a, b;
    vf acc[DOT_TILE];
    DOT_UNROLL
    for (uint32_t r = 0; r < DOT_TILE; r++)
        acc[r] = out[r];
    AMX_START(t, A, x, c->codes[0]);
    if (n > 1)
        AMX_START(t, B, x + step, c->codes[1]);
    AMX_FINISH(t, A, &a);
    for (uint32_t i = 0; i < n; i += 2, x += 2 * step, g += (size_t)2 * DOT_TILE) {
        if (i + 2 < n)
            AMX_START(t, A, x + 2 * step, c->codes[i + 2]);
        if (i + 1 < n)
            AMX_FINISH(t, B, &b);
        amx_add(t, acc, &a, c, i, g);
        if (i + 1 >= n)
            break;
        if (i + 3 < n)
            AMX_START(t, B, x + 3 * step, c->codes[i + 3]);
        if (i + 2 < n)
            AMX_FINISH(t, A, &a);
        amx_add(t, acc, &b, c, i + 1, g + DOT_TILE);
    }
    DOT_UNROLL
    for (uint32_t r = 0; r < DOT_TILE; r++)
        out[r] = acc[r];
}

/* Multiplies n_tiles tiles of rows, from `place` on, by a panel. */
KERNEL_INLINE void amx_panel(enum dtype t, const uint8_t *p, uint32_t k, const struct dot_rows *x,
                             uint32_t place, uint32_t n_tiles, vf *acc)
{
    const uint32_t n_groups = k / DOT_GROUP;
    struct amx_chunk chunk;
    for (uint32_t i = 0; i < n_tiles * DOT_TILE; i++)
        acc[i] = vf_zero();
    for (uint32_t first = 0; first < n_groups; first += CHUNK_GROUPS) {
        const uint32_t left = n_groups - first, n = left < CHUNK_GROUPS ? left : CHUNK_GROUPS;
        p = amx_unpack(t, p, n, &chunk);
        for (uint32_t i = 0; i < n_tiles; i++) {
            const uint64_t at = (uint64_t)(place + i * DOT_TILE) * n_groups + first * DOT_TILE;
            amx_tile(t, &chunk, n, x->codes + at * DOT_GROUP, x->groups + at, acc + i * DOT_TILE);
        }
    }
}

typedef void (*amx_panel_fn)(const uint8_t *p, uint32_t k, const struct dot_rows *x, uint32_t place,
                             uint32_t n_tiles, vf *acc);
#define AMX_FORMAT(dtype)                                                                          \
    static void amx_##dtype(const uint8_t *p, uint32_t k, const struct dot_rows *x,                \
                            uint32_t place, uint32_t n_tiles, vf *acc)                             \
    {                                                                                              \
        amx_panel(DTYPE_##dtype, p, k, x, place, n_tiles, acc);                                    \
    }
DOT_FORMATS(AMX_FORMAT)
#define AMX_ENTRY(dtype) [DTYPE_##dtype] = amx_##dtype,
static const amx_panel_fn amx_panels[DTYPE_COUNT] = {DOT_FORMATS(AMX_ENTRY)};

/* Multiplies as many rows as AMX handles, from `first` on, by one panel. Returns the number of
 * these rows. */
static uint32_t amx_some(const struct dot_task *t, uint32_t i_panel, uint32_t first, vf *acc)
{
    const uint32_t k = t->w->k, left = t->x->n_rows - first;
    const uint8_t *panel = (const uint8_t *)t->w->data + i_panel * pack_panel_bytes(t->w->dtype, k);
    if (left >= AMX_TILES_MIN * DOT_TILE) {
        uint32_t n = left / DOT_TILE < CHUNK_TILES ? left / DOT_TILE : CHUNK_TILES;
        amx_panels[t->w->dtype](panel, k, t->x, first, n, acc);
        return n * DOT_TILE;
    }
    const uint32_t tile = dot_tile_rows(left);
    struct dot_ahead none = {0};
    const struct dot_streams from = {panel, t->x->codes + (uint64_t)first * k,
                                     t->x->groups + (uint64_t)first * (k / DOT_GROUP), k, &none};
    dot_tiles[t->w->dtype](tile, &from, acc);
    return tile < left ? tile : left;
}

static void dot_amx_linear(const struct dot_task *t)
{
    if (t->x->n_rows < AMX_TILES_MIN * DOT_TILE) {
        dot_linear(t);
        return;
    }
    amx_begin(dot_has_halves(t->w->dtype) ? DOT_GROUP / 2 : DOT_GROUP);
    for (uint32_t i = t->panel_begin; i < t->panel_end; i++) {
        for (uint32_t first = 0, n; first < t->x->n_rows; first += n) {
            vf acc[CHUNK_TILES * DOT_TILE];
            n = amx_some(t, i, first, acc);
            dot_store(t, i, first, n, acc);
        }
    }
    amx_end();
}
