/* Converts rows of weights and of inputs to codes, in the layouts of dot.h. */
#include "kernels/cpu/dot/dot.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/pack/pack.h"
#include "kernels/host/blocks.h"
#include "kernels/host/f16.h"

bool dot_has(enum dtype dtype)
{
#define DOT_HAS(name) [DTYPE_##name] = true,
    static const bool has[DTYPE_COUNT] = {DOT_FORMATS(DOT_HAS)};
    return has[dtype];
}

/* ---- weights ---- */

/* Reads output i's part of a block's head. It is the inverse of put_head(). */
static const uint8_t *get_head(const struct format *f, const uint8_t *p, uint32_t i,
                               struct block *b)
{
    const struct pack_head h = pack_head_of(f);
    if (h.d == 4)
        memcpy(&b->d32, p + 4 * i, 4);
    else if (h.d == 2)
        memcpy(&b->d, p + 2 * i, 2);
    if (h.dmin)
        memcpy(&b->dmin, p + PANEL_N * h.d + 2 * i, 2);
    if (h.zero)
        b->zero = p[PANEL_N * (h.d + h.dmin) + i];
    return p + PANEL_N * (h.d + h.dmin + h.zero);
}

static uint8_t get_code(const struct format *f, const uint8_t *p, uint32_t i, uint32_t k)
{
    const uint32_t at = i * 4 + k % 4, b = k / 4;
    if (f->code_bits == 8)
        return p[b * 64 + at] ^ 0x80;
    uint32_t code = p[b / 2 * 64 + at] >> b % 2 * 4 & 15;
    if (f->code_bits == 5)
        code |= (p[256 + at] >> b & 1u) << 4;
    else if (f->code_bits == 6)
        code |= (p[256 + b / 4 * 64 + at] >> b % 4 * 2 & 3u) << 4;
    return (uint8_t)code;
}

static const uint8_t *get_group(const struct format *f, const uint8_t *p, uint32_t i, uint32_t i_k,
                                struct block *b)
{
    const uint32_t first = i_k / f->group_elems, n = DOT_GROUP / f->group_elems;
    for (uint32_t g = first; f->values == VALUES_SCALED && g < first + n; g++, p += PANEL_N)
        b->scales[g] = p[i];
    if (f->values == VALUES_SCALED_MIN) {
        b->scales[first] = p[i];
        b->mins[first] = p[PANEL_N + i];
        p += 2 * PANEL_N;
    }
    for (uint32_t k = 0; k < DOT_GROUP; k++)
        b->codes[i_k + k] = get_code(f, p, i, k);
    return p + f->code_bits * 64;
}

void dot_embed_row(const struct weight *w, uint32_t id, float scale, float *out)
{
    const struct format *f = format_of(w->dtype);
    const uint8_t *p = (const uint8_t *)w->data + id / PANEL_N * pack_panel_bytes(w->dtype, w->k);
    struct block b = {0};
    for (uint32_t first = 0; first < w->k; first += f->block_elems) {
        p = get_head(f, p, id % PANEL_N, &b);
        for (uint32_t k = 0; k < f->block_elems; k += DOT_GROUP)
            p = get_group(f, p, id % PANEL_N, k, &b);
        for (uint32_t k = 0; k < f->block_elems; k++)
            out[first + k] = scale * block_value(f, &b, k);
    }
}

/* ---- rows ---- */

void dot_quantise_rows(const struct dot_kernels *kernels, const float *x, uint32_t x_stride,
                       const struct dot_rows *to, uint32_t i_tile)
{
    const uint32_t n_groups = to->k / DOT_GROUP;
    uint32_t first = i_tile * DOT_TILE, end = first + DOT_TILE;
    uint64_t place = first;
    end = end < to->n_rows ? end : to->n_rows;
    while (first < end) {
        const uint32_t left = to->n_rows - first, tile = dot_tile_rows(left);
        int8_t *codes = to->codes + place * to->k;
        struct dot_group *groups = to->groups + place * n_groups;
        for (uint32_t r = 0; r < tile; r++) {
            if (r < left) {
                kernels->quantise(x + (uint64_t)(first + r) * x_stride, to->k,
                                  codes + r * DOT_GROUP, tile * DOT_GROUP, groups + r, tile);
                continue;
            }
            for (uint32_t g = 0; g < n_groups; g++) {
                memset(codes + ((uint64_t)g * tile + r) * DOT_GROUP, 0, DOT_GROUP);
                groups[(uint64_t)g * tile + r] = (struct dot_group){0};
            }
        }
        first += tile;
        place += tile;
    }
}
