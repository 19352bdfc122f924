#pragma once
/* Implements linear and embed_row for any vec/ISA.h, which is included before this header
 * (kernels/cpu/linear/linear.h has the math).
 *
 * A few rows are multiplied by the format's own kernel (formats/few_impl.h). With more rows,
 * panels are dequantised into t->scratch, GEMM_KC inputs at a time, so that they stay in the
 * first-level cache. gemm_tile then multiplies these panels with tiles of rows. Between chunks
 * of K, the sums are kept in `out`, which loses no bits. Both methods add in the same order. */
#include "kernels/cpu/formats/columns_impl.h"
#include "kernels/cpu/formats/formats.h"
#include "kernels/cpu/linear/linear.h"
#include "kernels/cpu/pack/pack.h"

enum { GEMM_KC = 256 }; /* inputs of a chunk of K; a whole number of blocks of each format */

_Static_assert(GEMM_PANELS *GEMM_KC *PANEL_N <= LINEAR_SCRATCH_FLOATS, "pieces fit in scratch");

/* `gemm_ahead` describes the prefetch of the packed data of the next piece. Each tile of rows
 * prefetches its share, so that memory is read while the current piece is multiplied. With 32
 * rows, a piece's products take six times as long as its reading; without the prefetch, both
 * times would add up. */
struct gemm_ahead {
    const uint8_t *data; /* packed data of the first panel */
    uint64_t panel_bytes, n_bytes, share;
};

/* `gemm` describes a product of panels as floats, w[panel][k][16] with k < n_k, with rows of x.
 * The product is added to the sums in `out`. */
struct gemm {
    const float *w, *x, *bias; /* `bias`: NULL in all but the last chunk of K */
    float *out;
    uint32_t n_k, x_stride, out_stride;
    uint32_t n_columns; /* number of columns in all panels together */
    bool first;         /* true in the first chunk of K: sums begin at zero */
    struct gemm_ahead ahead;
};

/* Multiplies n_rows rows by n_panels panels and adds the products to the sums in g->out. If
 * g->first is set, the sums begin at zero. n_panels and n_rows are constants, so that the sums
 * stay in registers. */
KERNEL_INLINE void gemm_tile(uint32_t n_panels, uint32_t n_rows, const struct gemm *g)
{
    vf acc[GEMM_ROWS][GEMM_PANELS];
    uint32_t n[GEMM_PANELS];
    KERNEL_UNROLL
    for (uint32_t i = 0; i < n_panels; i++) {
        n[i] = g->n_columns - i * PANEL_N < PANEL_N ? g->n_columns - i * PANEL_N : PANEL_N;
        KERNEL_UNROLL
        for (uint32_t r = 0; r < n_rows; r++)
            acc[r][i] =
                g->first ? vf_zero()
                         : load_columns(g->out + (uint64_t)r * g->out_stride + i * PANEL_N, n[i]);
    }
    const float *w = g->w, *x = g->x;
    const uint64_t x_stride = g->x_stride, w_stride = (uint64_t)g->n_k * PANEL_N;
    for (uint32_t k = 0; k < g->n_k; k++, w += PANEL_N, x++) {
        vf wk[GEMM_PANELS];
        for (uint32_t i = 0; i < n_panels; i++)
            wk[i] = vf_load(w + i * w_stride);
        for (uint32_t r = 0; r < n_rows; r++) {
            vf xk = vf_set1(x[r * x_stride]);
            for (uint32_t i = 0; i < n_panels; i++)
                acc[r][i] = vf_fma(xk, wk[i], acc[r][i]);
        }
    }
    KERNEL_UNROLL
    for (uint32_t i = 0; i < n_panels; i++) {
        KERNEL_UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            vf y = acc[r][i];
            if (g->bias)
                y = vf_add(y, load_columns(g->bias + i * PANEL_N, n[i]));
            store_columns(g->out + (uint64_t)r * g->out_stride + i * PANEL_N, y, n[i]);
        }
    }
}

static void gemm_ask(struct gemm_ahead *a, uint32_t n_panels)
{
    uint64_t n = a->share < a->n_bytes ? a->share : a->n_bytes;
    for (uint32_t i = 0; i < n_panels; i++)
        for (uint64_t at = 0; at < n; at += 64)
            __builtin_prefetch(a->data + i * a->panel_bytes + at, 0, 2);
    a->data += n;
    a->n_bytes -= n;
}

KERNEL_INLINE void gemm_rows(uint32_t n_panels, struct gemm g, uint32_t n_rows)
{
    uint32_t n;
    for (; n_rows > 0; n_rows -= n) {
        n = 1;
        gemm_ask(&g.ahead, n_panels);
        if (n_rows >= GEMM_ROWS)
            gemm_tile(n_panels, n = GEMM_ROWS, &g);
        else if (GEMM_ROWS > 8 && n_rows >= 8)
            gemm_tile(n_panels, n = 8, &g);
        else if (GEMM_ROWS > 4 && n_rows >= 4)
            gemm_tile(n_panels, n = 4, &g);
        else if (GEMM_ROWS > 2 && n_rows >= 2)
            gemm_tile(n_panels, n = 2, &g);
        else
            gemm_tile(n_panels, 1, &g);
        g.x += (uint64_t)n * g.x_stride;
        g.out += (uint64_t)n * g.out_stride;
    }
}
static void gemm_wide(const struct gemm *g, uint32_t n_rows)
{
    gemm_rows(GEMM_PANELS, *g, n_rows);
}
static void gemm_narrow(const struct gemm *g, uint32_t n_rows)
{
    gemm_rows(1, *g, n_rows);
}

/* Returns the piece that follows the piece at k0 of the panels at `data`. That is the next piece
 * of the same panels, or the first piece of the following panels, if there are equally many. */
static struct gemm_ahead gemm_next(const struct linear_task *t, const uint8_t *data, uint32_t k0,
                                   uint32_t n_panels, struct panels_ahead behind)
{
    const uint32_t k = t->w->k, n_tiles = (t->n_rows + GEMM_ROWS - 1) / GEMM_ROWS;
    struct gemm_ahead a = {.panel_bytes = pack_panel_bytes(t->w->dtype, k)};
    uint32_t next = k0 + GEMM_KC < k ? k0 + GEMM_KC : 0;
    if (next == 0 && behind.n < n_panels)
        return a;
    a.data = next == 0 ? behind.data : data + pack_panel_bytes(t->w->dtype, next);
    a.n_bytes = pack_panel_bytes(t->w->dtype, k - next < GEMM_KC ? k - next : GEMM_KC);
    a.share = (a.n_bytes / n_tiles + 64) / 64 * 64;
    return a;
}

static void linear_rows(const struct format_kernels *f, const struct linear_task *t,
                        uint64_t panel_bytes)
{
    const uint32_t k = t->w->k;
    uint32_t n_panels;
    for (uint32_t i_panel = t->panel_begin; i_panel < t->panel_end; i_panel += n_panels) {
        n_panels = t->panel_end - i_panel >= GEMM_PANELS ? GEMM_PANELS : 1;
        uint32_t first_column = i_panel * PANEL_N, left = t->w->n - first_column;
        const uint8_t *data = (const uint8_t *)t->w->data + i_panel * panel_bytes;
        struct panels_ahead behind = {data + n_panels * panel_bytes,
                                      t->panel_end - i_panel - n_panels};
        if (behind.n == 0)
            behind = t->next;
        for (uint32_t k0 = 0; k0 < k; k0 += GEMM_KC) {
            struct gemm g = {.w = t->scratch,
                             .x = t->x + k0,
                             .x_stride = t->x_stride,
                             .out = t->out + first_column,
                             .out_stride = t->out_stride,
                             .n_k = k - k0 < GEMM_KC ? k - k0 : GEMM_KC,
                             .first = k0 == 0,
                             .n_columns = left < n_panels * PANEL_N ? left : n_panels * PANEL_N,
                             .ahead = gemm_next(t, data, k0, n_panels, behind)};
            if (t->bias && k0 + g.n_k == k)
                g.bias = t->bias + first_column;
            for (uint32_t i = 0; i < n_panels; i++)
                f->dequantize(data + i * panel_bytes + pack_panel_bytes(t->w->dtype, k0), g.n_k,
                              t->scratch + (uint64_t)i * g.n_k * PANEL_N);
            if (n_panels == GEMM_PANELS)
                gemm_wide(&g, t->n_rows);
            else
                gemm_narrow(&g, t->n_rows);
        }
    }
}

static void linear_of(const struct format_kernels *f, const struct linear_task *t)
{
    uint64_t panel_bytes = pack_panel_bytes(t->w->dtype, t->w->k);
    if (t->n_rows <= f->max_few)
        f->few(t, panel_bytes);
    else
        linear_rows(f, t, panel_bytes);
}

/* Dequantises the row's whole panel, which is 16 times the needed data. The cost is small
 * compared with that of a layer. */
static void embed_of(const struct format_kernels *f, const struct weight *w, uint32_t id,
                     float scale, float *out)
{
    const uint8_t *p = (const uint8_t *)w->data + id / PANEL_N * pack_panel_bytes(w->dtype, w->k);
    float values[GEMM_KC * PANEL_N];
    for (uint32_t k0 = 0; k0 < w->k; k0 += GEMM_KC) {
        uint32_t n = w->k - k0 < GEMM_KC ? w->k - k0 : GEMM_KC;
        f->dequantize(p + pack_panel_bytes(w->dtype, k0), n, values);
        for (uint32_t i = 0; i < n; i++)
            out[k0 + i] = scale * values[i * PANEL_N + id % PANEL_N];
    }
}
