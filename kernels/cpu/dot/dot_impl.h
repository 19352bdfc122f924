#pragma once
/* Implements the kernels of kernels/cpu/dot/dot.h for any vec/ISA.h and vdot_*.h, which are
 * included before this header.
 *
 * The codes of a panel's 32 inputs are unpacked into eight vectors, and all rows of a tile
 * multiply these vectors. Each row has separate sums, and its codes are broadcast four at a
 * time. With too few registers for that (VDOT_ROWS), the vectors are unpacked into memory and
 * the rows of a tile are processed a few at a time. Their sums then stay in registers, and each
 * loaded vector serves all of these rows. */
#include <math.h>

#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/formats/columns_impl.h"
#include "kernels/cpu/pack/pack.h"

enum {
    DOT_PREFETCH = 2048,
    /* most bytes of panels that all tiles multiply before the next panels */
    DOT_PANELS_BYTES = 128 << 10,
    DOT_MAX_PANELS = 8,
    VQ_BYTES = 64
};

/* With sanitizers, or without vectors, rows are a loop: unrolled code takes minutes to compile. */
#if defined(COX_SANITIZED) || !(defined(__AVX2__) || defined(VEC_NEON))
#define DOT_ROLLED
#define DOT_UNROLL
#else
#define DOT_UNROLL KERNEL_UNROLL
#endif

struct dot_scales {
    struct fmt_scales s;
    vf second; /* Q6_K only: scale of the second 16 inputs */
};

KERNEL_INLINE bool dot_has_halves(enum dtype t)
{
    return t == DTYPE_Q6_K;
}
KERNEL_INLINE bool dot_has_min(enum dtype t)
{
    return fmt_has_min(t) || fmt_has_mins(t) || t == DTYPE_INT4 || t == DTYPE_INT8;
}
/* Returns the number that must be subtracted from every stored code. */
KERNEL_INLINE int32_t dot_offset(enum dtype t)
{
    if (fmt_code_bits(t) == 8)
        return 128;
    return dot_has_min(t) ? 0 : fmt_offset(t);
}

/* dot_begin_group() and dot_codes() return the address at which the next data begins. */
KERNEL_INLINE const uint8_t *dot_begin_group(enum dtype t, const uint8_t *p, struct dot_scales *s)
{
    if (dot_has_halves(t)) {
        s->s.scale = vf_mul(s->s.d, vf_from_i8(vb_load(p)));
        s->second = vf_mul(s->s.d, vf_from_i8(vb_load(p + PANEL_N)));
        return p + (size_t)2 * PANEL_N;
    }
    if (t == DTYPE_INT4 || t == DTYPE_INT8) {
        vf zero = t == DTYPE_INT4 ? vf_from_u8(s->s.zero) : s->s.zero_f;
        s->s.neg_min = vf_sub(vf_zero(), vf_mul(s->s.d, zero));
    }
    return fmt_begin_group(t, p, &s->s);
}
KERNEL_INLINE const uint8_t *dot_codes(enum dtype t, const uint8_t *p, vq w[8])
{
    const uint32_t bits = fmt_code_bits(t);
    KERNEL_UNROLL
    for (uint32_t i = 0; i < 8 && bits == 8; i++, p += VQ_BYTES)
        w[i] = vq_load(p);
    KERNEL_UNROLL
    for (uint32_t i = 0; i < 8 && bits < 8; i += 2, p += VQ_BYTES) {
        vq both = vq_load(p);
        w[i] = vq_and(both, 15);
        w[i + 1] = vq_high(both);
    }
    if (bits == 5) {
        vq fifth = vq_load(p);
        p += VQ_BYTES;
        KERNEL_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            w[i] = vq_or_bits(w[i], fifth, i, 0x10);
    }
    if (bits == 6) {
        vq high[2] = {vq_load(p), vq_load(p + VQ_BYTES)};
        p += (size_t)2 * VQ_BYTES;
        KERNEL_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            w[i] = vq_or_bits(w[i], high[i / 4], i % 4 * 2, 0x30);
    }
    return p;
}

/* Returns acc plus a row's product with one group, from its sums of codes. `second` is used only
 * by formats with halves. */
KERNEL_INLINE vf dot_add(enum dtype t, vf acc, vi first, vi second, const struct dot_scales *s,
                         const struct dot_group *g)
{
    vf sum = vf_mul(vi_to_f(first), s->s.scale);
    if (dot_has_halves(t))
        sum = vf_fma(vi_to_f(second), s->second, sum);
    acc = vf_fma(sum, vf_set1(g->scale), acc);
    if (dot_has_min(t))
        acc = vf_fma(s->s.neg_min, vf_set1(g->sum), acc);
    return acc;
}
KERNEL_INLINE vf dot_row(enum dtype t, vf acc, const vq *w, const struct dot_scales *s,
                         const int8_t *x, const struct dot_group *g)
{
    const uint32_t bits = fmt_code_bits(t);
    const int32_t offset = dot_offset(t);
    if (!dot_has_halves(t)) {
        vi sum = vi_dot(bits, 8, w, x, offset * g->neg);
        return dot_add(t, acc, sum, sum, s, g);
    }
    vi first = vi_dot(bits, 4, w, x, offset * g->neg_half[0]);
    vi second = vi_dot(bits, 4, w + 4, x + 16, offset * g->neg_half[1]);
    return dot_add(t, acc, first, second, s, g);
}

#ifdef VDOT_ROWS
#ifdef DOT_ROLLED
enum { DOT_MAX_STEP = 2 };
#else
enum { DOT_MAX_STEP = 4 };
#endif
enum { DOT_FEW = 2 }; /* largest number of rows for which unpacking is not worth its cost */
/* Adds a group's products for n rows side by side. */
KERNEL_INLINE void dot_step(enum dtype t, uint32_t n, vf *acc, const vq *w,
                            const struct dot_scales *s, const int8_t *x, const struct dot_group *g)
{
    const uint32_t bits = fmt_code_bits(t), n_parts = dot_has_halves(t) ? 2 : 1;
    const int32_t offset = dot_offset(t);
    vi sum[2][DOT_MAX_STEP];
    KERNEL_UNROLL
    for (uint32_t i = 0; i < n_parts; i++) {
        KERNEL_UNROLL
        for (uint32_t r = 0; r < n; r++)
            sum[i][r] = vi_begin(n_parts == 1 ? g[r].neg : g[r].neg_half[i], offset);
        vi_dot_rows(bits, 8 / n_parts, n, w + 4 * i, x + (size_t)16 * i, DOT_GROUP, sum[i]);
        KERNEL_UNROLL
        for (uint32_t r = 0; r < n; r++)
            sum[i][r] = vi_end(sum[i][r], n_parts == 1 ? g[r].neg : g[r].neg_half[i], offset);
    }
    KERNEL_UNROLL
    for (uint32_t r = 0; r < n; r++)
        acc[r] = dot_add(t, acc[r], sum[0][r], sum[n_parts - 1][r], s, g + r);
}
/* Adds a group's products for all rows of a tile. w has 16 vectors; the first 8 hold codes. */
KERNEL_INLINE void dot_rows(enum dtype t, uint32_t n_rows, vf *acc, vq *w,
                            const struct dot_scales *s, const int8_t *x, const struct dot_group *g)
{
    const uint32_t wanted = vdot_n_rows(fmt_code_bits(t));
    const uint32_t step = wanted < DOT_MAX_STEP ? wanted : DOT_MAX_STEP;
    if (n_rows <= DOT_FEW) {
        DOT_UNROLL
        for (uint32_t r = 0; r < n_rows; r++)
            acc[r] = dot_row(t, acc[r], w, s, x + (size_t)r * DOT_GROUP, g + r);
        return;
    }
    vdot_unpack(fmt_code_bits(t), w);
    for (uint32_t r = 0; r < n_rows; r += step)
        dot_step(t, step, acc + r, vdot_in_memory(w), s, x + (size_t)r * DOT_GROUP, g + r);
}
#else
KERNEL_INLINE void dot_rows(enum dtype t, uint32_t n_rows, vf *acc, vq *w,
                            const struct dot_scales *s, const int8_t *x, const struct dot_group *g)
{
    DOT_UNROLL
    for (uint32_t r = 0; r < n_rows; r++)
        acc[r] = dot_row(t, acc[r], w, s, x + (size_t)r * DOT_GROUP, g + r);
}
#endif

/* `dot_ahead` describes the prefetch of the panels that all tiles multiply next. Tiles of full
 * size prefetch n_lines cache lines for each group. The prefetches are spread evenly, because a
 * core can request only a few lines at once. `at` is NULL when there is nothing to prefetch. */
struct dot_ahead {
    const uint8_t *at, *end;
    uint32_t n_lines;
};
KERNEL_INLINE void dot_ask(struct dot_ahead *a)
{
    if (a->at >= a->end)
        return;
    for (uint32_t i = 0; i < a->n_lines; i++, a->at += 64)
        __builtin_prefetch(a->at, 0, 2);
}

/* `dot_streams` holds the inputs of a tile's product: a panel and the tile's rows, k inputs
 * each. */
struct dot_streams {
    const uint8_t *w;
    const int8_t *x;
    const struct dot_group *groups;
    uint32_t k;
    struct dot_ahead *ahead;
};
/* Multiplies a tile by a panel. n_rows is a constant if rows are unrolled. */
KERNEL_INLINE void dot_tile(enum dtype t, uint32_t n_rows, const struct dot_streams *from, vf *out)
{
    const uint8_t *p = from->w;
    const int8_t *x = from->x;
    const struct dot_group *g = from->groups;
    vf acc[DOT_TILE];
    struct dot_scales s;
    DOT_UNROLL
    for (uint32_t r = 0; r < n_rows; r++)
        acc[r] = vf_zero();
    for (uint32_t i_block = 0; i_block < from->k / fmt_block_elems(t); i_block++) {
        p = fmt_begin_block(t, p, &s.s);
        for (uint32_t i = 0; i < fmt_block_elems(t); i += DOT_GROUP) {
            vq w[16];
            p = dot_begin_group(t, p, &s);
            for (uint32_t at = 0; at < fmt_code_bits(t) * VQ_BYTES; at += VQ_BYTES)
                __builtin_prefetch((const void *)((uintptr_t)p + DOT_PREFETCH + at));
            if (n_rows == DOT_TILE)
                dot_ask(from->ahead);
            p = dot_codes(t, p, w);
            dot_rows(t, n_rows, acc, w, &s, x, g);
            x += (size_t)n_rows * DOT_GROUP;
            g += n_rows;
        }
    }
    DOT_UNROLL
    for (uint32_t r = 0; r < n_rows; r++)
        out[r] = acc[r];
}

typedef void (*dot_tile_fn)(uint32_t n_rows, const struct dot_streams *from, vf *out);

#ifdef DOT_ROLLED
#define DOT_FORMAT(dtype)                                                                          \
    static void dot_##dtype(uint32_t n_rows, const struct dot_streams *from, vf *out)              \
    {                                                                                              \
        dot_tile(DTYPE_##dtype, n_rows, from, out);                                                \
    }
#else
#define DOT_FORMAT(dtype)                                                                          \
    static void dot_##dtype(uint32_t n_rows, const struct dot_streams *from, vf *out)              \
    {                                                                                              \
        if (n_rows == 16)                                                                          \
            dot_tile(DTYPE_##dtype, 16, from, out);                                                \
        else if (n_rows == 8)                                                                      \
            dot_tile(DTYPE_##dtype, 8, from, out);                                                 \
        else if (n_rows == 4)                                                                      \
            dot_tile(DTYPE_##dtype, 4, from, out);                                                 \
        else if (n_rows == 2)                                                                      \
            dot_tile(DTYPE_##dtype, 2, from, out);                                                 \
        else                                                                                       \
            dot_tile(DTYPE_##dtype, 1, from, out);                                                 \
    }
#endif
DOT_FORMATS(DOT_FORMAT)
#define DOT_ENTRY(dtype) [DTYPE_##dtype] = dot_##dtype,
static const dot_tile_fn dot_tiles[DTYPE_COUNT] = {DOT_FORMATS(DOT_ENTRY)};

static void dot_store(const struct dot_task *t, uint32_t i_panel, uint32_t first, uint32_t n_rows,
                      const vf *acc)
{
    const uint32_t at = i_panel * PANEL_N, left = t->w->n - at, n = left < PANEL_N ? left : PANEL_N;
    for (uint32_t r = 0; r < n_rows; r++) {
        vf y = acc[r];
        if (t->bias)
            y = vf_add(y, load_columns(t->bias + at, n));
        store_columns(t->out + (uint64_t)(first + r) * t->out_stride + at, y, n);
    }
}

/* Multiplies the tile that begins at row `first`, stored at `place`, by panels begin .. end. */
static void dot_panels(const struct dot_task *t, uint32_t begin, uint32_t end, uint32_t first,
                       uint64_t place, struct dot_ahead *ahead)
{
    const uint32_t k = t->w->k, left = t->x->n_rows - first, tile = dot_tile_rows(left);
    const uint64_t panel_bytes = pack_panel_bytes(t->w->dtype, k);
    for (uint32_t i = begin; i < end; i++) {
        vf acc[DOT_TILE];
        const struct dot_streams from = {(const uint8_t *)t->w->data + i * panel_bytes,
                                         t->x->codes + place * k,
                                         t->x->groups + place * (k / DOT_GROUP), k, ahead};
        dot_tiles[t->w->dtype](tile, &from, acc);
        dot_store(t, i, first, tile < left ? tile : left, acc);
    }
}

/* Returns the prefetch of these panels for the time in which other panels are multiplied. With
 * fewer than two whole tiles it returns an empty prefetch; dot_tile() then prefetches its own
 * panel. */
static struct dot_ahead dot_ahead_of(const struct dot_task *t, struct panels_ahead panels)
{
    const uint32_t n_tiles = t->x->n_rows / DOT_TILE, n_groups = t->w->k / DOT_GROUP;
    const uint64_t panel_bytes = pack_panel_bytes(t->w->dtype, t->w->k);
    if (n_tiles < 2 || !panels.data)
        return (struct dot_ahead){0};
    return (struct dot_ahead){panels.data, panels.data + panels.n * panel_bytes,
                              (uint32_t)(panel_bytes / ((uint64_t)64 * n_tiles * n_groups)) + 1};
}

/* Returns up to n_most panels to compute next: the task's own from `end` on, or those of
 * t->next. */
static struct panels_ahead dot_next(const struct dot_task *t, uint32_t end, uint32_t n_most)
{
    struct panels_ahead a = {(const uint8_t *)t->w->data +
                                 end * pack_panel_bytes(t->w->dtype, t->w->k),
                             t->panel_end - end};
    if (a.n == 0)
        a = t->next;
    a.n = a.n < n_most ? a.n : n_most;
    return a;
}

/* Computes the task. A tile's rows stay in the first-level cache for some panels. These panels
 * stay in the second-level cache for all tiles. */
static void dot_linear(const struct dot_task *t)
{
    const uint64_t fit = DOT_PANELS_BYTES / pack_panel_bytes(t->w->dtype, t->w->k);
    const uint32_t n_panels = fit < 1 ? 1 : fit > DOT_MAX_PANELS ? DOT_MAX_PANELS : (uint32_t)fit;
    for (uint32_t i = t->panel_begin; i < t->panel_end; i += n_panels) {
        const uint32_t left = t->panel_end - i, end = i + (left < n_panels ? left : n_panels);
        struct dot_ahead ahead = dot_ahead_of(t, dot_next(t, end, n_panels));
        uint64_t place = 0;
        for (uint32_t first = 0, tile; first < t->x->n_rows; first += tile, place += tile) {
            tile = dot_tile_rows(t->x->n_rows - first);
            dot_panels(t, i, end, first, place, &ahead);
        }
    }
}

/* ---- codes of activations ---- */

static void dot_quantise(const float *x, uint32_t k, int8_t *codes, uint32_t code_stride,
                         struct dot_group *groups, uint32_t group_stride)
{
    for (uint32_t i = 0; i < k / DOT_GROUP; i++, x += DOT_GROUP) {
        struct dot_group *g = groups + (uint64_t)i * group_stride;
        int8_t *to = codes + (uint64_t)i * code_stride;
        float largest = vdot_largest(x);
        /* `largest` is infinite or NaN: this is stored only in the scale */
        if (!(largest <= 0x1.fffffep127f)) {
            memset(to, 0, DOT_GROUP);
            *g = (struct dot_group){.scale = NAN, .sum = NAN};
            continue;
        }
        /* For a smaller `largest`, 127 / largest would be infinite. */
        float inverse = largest < 0x1p-120f ? 0 : 127.0f / largest;
        int32_t half[2];
        vdot_round(x, inverse, to, half);
        float scale = largest < 0x1p-120f ? 0 : largest / 127.0f;
        *g = (struct dot_group){.scale = scale,
                                .sum = scale * (float)(half[0] + half[1]),
                                .neg = -(half[0] + half[1]),
                                .neg_half = {-half[0], -half[1]}};
    }
}
