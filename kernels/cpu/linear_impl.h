#pragma once
/* linear and embed_row for any vec_*.h, included before this (kernels/cpu/linear.h has the math).
 *
 * Few rows (decode) are bound by reading weights: gemv dequantises in registers, with several
 * panels side by side, one accumulator for each and each row, so that the chains of FMAs hide their
 * latency. More rows: panels are dequantised into t->scratch, GEMM_KC inputs at a time so that they
 * stay in the first cache, and gemm_tile multiplies them with tiles of rows; between chunks of K
 * the sums rest in out, which loses no bits. Both add in the same order. */
#include <assert.h>

#include "kernels/cpu/formats_impl.h"
#include "kernels/cpu/pack.h"

/* As many accumulators as the registers hold: 32, 16 halves, 16 quarters. GEMV_n: panels side by
 * side for n rows; 0: no kernel. */
#if defined(__AVX512F__)
enum { GEMV_1 = 4, GEMV_2 = 4, GEMV_4 = 2, GEMV_8 = 2, GEMV_MAX_ROWS = 8 };
enum { GEMM_PANELS = 2, GEMM_ROWS = 12 };
#elif defined(__AVX2__)
enum { GEMV_1 = 4, GEMV_2 = 2, GEMV_4 = 1, GEMV_8 = 0, GEMV_MAX_ROWS = 4 };
enum { GEMM_PANELS = 1, GEMM_ROWS = 6 };
#else
enum { GEMV_1 = 2, GEMV_2 = 1, GEMV_4 = 0, GEMV_8 = 0, GEMV_MAX_ROWS = 2 };
enum { GEMM_PANELS = 1, GEMM_ROWS = 2 };
#endif
enum {
    GEMM_MIN_ROWS = 4 * GEMV_MAX_ROWS + 1, /* fewer: gemv, GEMV_MAX_ROWS at a time */
    GEMM_KC = 256,                         /* a whole number of blocks of each format */
    PREFETCH_BYTES = 2048,
};

_Static_assert(GEMM_PANELS *GEMM_KC *PANEL_N <= LINEAR_SCRATCH_FLOATS, "pieces fit in scratch");

KERNEL_INLINE uint32_t columns_of_panel(const struct linear_task *t, uint32_t i_panel)
{
    uint32_t left = t->w->n - i_panel * PANEL_N;
    return left < PANEL_N ? left : PANEL_N;
}
KERNEL_INLINE vf load_columns(const float *p, uint32_t n)
{
    return n == PANEL_N ? vf_load(p) : vf_load_n(p, n);
}
KERNEL_INLINE void store_columns(float *p, vf v, uint32_t n)
{
    if (n == PANEL_N)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}

/* Rows of x and panels that one gemv takes. The last ones may be there twice, so that their numbers
 * are constants: what comes twice is stored once. */
struct gemv {
    const float *x[GEMV_MAX_ROWS];
    const uint8_t *panels[GEMV_1];
    uint32_t k;
    uint64_t panel_bytes;
    vf acc[GEMV_MAX_ROWS][GEMV_1];
};

/* Asks for what is read PREFETCH_BYTES later: of this panel, or past its end, of the panel that
 * takes its place in the next n_panels. The hardware alone gives up at every panel's end. */
KERNEL_INLINE void gemv_prefetch(const uint8_t *p, uint64_t distance, uint32_t n_bytes)
{
    for (uint32_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)p + distance + i));
}

KERNEL_INLINE void gemv(enum dtype dtype, uint32_t n_panels, uint32_t n_rows, struct gemv *g)
{
    vf acc[GEMV_MAX_ROWS][GEMV_1];
    const float *x[GEMV_MAX_ROWS];
    const uint8_t *p[GEMV_1];
    const uint8_t *end = g->panels[0] + g->panel_bytes;
    struct fmt_scales s[GEMV_1];
    for (uint32_t i = 0; i < n_panels; i++)
        p[i] = g->panels[i];
    for (uint32_t r = 0; r < n_rows; r++) {
        x[r] = g->x[r];
        for (uint32_t i = 0; i < n_panels; i++)
            acc[r][i] = vf_zero();
    }
    uint32_t at = 0;
    for (uint32_t i_block = 0; i_block < g->k / fmt_block_elems(dtype); i_block++) {
        for (uint32_t i = 0; i < n_panels; i++)
            p[i] = fmt_begin_block(dtype, p[i], &s[i]);
        for (uint32_t j = 0; j < fmt_block_elems(dtype); j += fmt_group_elems(dtype)) {
            bool near_end = (uint64_t)(end - p[0]) <= PREFETCH_BYTES;
            uint64_t ahead = PREFETCH_BYTES + (near_end ? (n_panels - 1) * g->panel_bytes : 0);
            for (uint32_t i = 0; i < n_panels; i++)
                p[i] = fmt_begin_group(dtype, p[i], &s[i]);
            for (uint32_t k = 0; k < fmt_group_elems(dtype); k += 8, at += 8) {
                KERNEL_UNROLL
                for (uint32_t i_pair = 0; i_pair < 4; i_pair++) {
                    vf w[GEMV_1][2];
                    for (uint32_t i = 0; i < n_panels; i++)
                        fmt_pair(dtype, p[i], i_pair, &s[i], w[i]);
                    for (uint32_t r = 0; r < n_rows; r++) {
                        vf x0 = vf_set1(x[r][at + 2 * i_pair]);
                        vf x1 = vf_set1(x[r][at + 2 * i_pair + 1]);
                        for (uint32_t i = 0; i < n_panels; i++)
                            acc[r][i] = vf_fma(x1, w[i][1], vf_fma(x0, w[i][0], acc[r][i]));
                    }
                }
                for (uint32_t i = 0; i < n_panels; i++) {
                    gemv_prefetch(p[i], ahead, fmt_bytes_8k(dtype));
                    p[i] += fmt_bytes_8k(dtype);
                }
            }
        }
    }
    for (uint32_t k = 0; fmt_is_plain(dtype) && k < g->k % 8; k++)
        for (uint32_t i = 0; i < n_panels; i++)
            for (uint32_t r = 0; r < n_rows; r++)
                acc[r][i] = vf_fma(vf_set1(x[r][at + k]), fmt_plain(dtype, p[i], k), acc[r][i]);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n_panels; i++)
            g->acc[r][i] = acc[r][i];
}

/* n_rows <= max_rows rows; wide panels side by side. Both of the latter are constants. */
KERNEL_INLINE void linear_few_rows(enum dtype dtype, uint32_t wide, uint32_t max_rows,
                                   const struct linear_task *t, uint64_t panel_bytes)
{
    struct gemv g = {.k = t->w->k, .panel_bytes = panel_bytes};
    for (uint32_t r = 0; r < max_rows; r++)
        g.x[r] = t->x + (uint64_t)(r < t->n_rows ? r : t->n_rows - 1) * t->x_stride;
    for (uint32_t first = t->panel_begin; first < t->panel_end; first += wide) {
        uint32_t n_panels = t->panel_end - first < wide ? t->panel_end - first : wide;
        for (uint32_t i = 0; i < wide; i++)
            g.panels[i] = (const uint8_t *)t->w->data +
                          (first + (i < n_panels ? i : n_panels - 1)) * panel_bytes;
        gemv(dtype, wide, max_rows, &g);
        for (uint32_t i = 0; i < n_panels; i++) {
            uint32_t n = columns_of_panel(t, first + i), at = (first + i) * PANEL_N;
            for (uint32_t r = 0; r < t->n_rows; r++) {
                vf y = g.acc[r][i];
                if (t->bias)
                    y = vf_add(y, load_columns(t->bias + at, n));
                store_columns(t->out + (uint64_t)r * t->out_stride + at, y, n);
            }
        }
    }
}

/* Panels as floats, w[panel][k][16] with k < n_k, times rows of x; sums go on in out. */
struct gemm {
    const float *w, *x, *bias; /* bias: NULL unless this chunk of K is the last and there is one */
    float *out;
    uint32_t n_k, x_stride, out_stride;
    uint32_t n_columns; /* of all panels */
    bool first;         /* sums begin at zero */
};

/* n_panels and n_rows are constants: their sums are registers. */
KERNEL_INLINE void gemm_tile(uint32_t n_panels, uint32_t n_rows, const struct gemm *g)
{
    vf acc[GEMM_ROWS][GEMM_PANELS];
    uint32_t n[GEMM_PANELS];
    for (uint32_t i = 0; i < n_panels; i++) {
        n[i] = g->n_columns - i * PANEL_N < PANEL_N ? g->n_columns - i * PANEL_N : PANEL_N;
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
    for (uint32_t i = 0; i < n_panels; i++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            vf y = acc[r][i];
            if (g->bias)
                y = vf_add(y, load_columns(g->bias + i * PANEL_N, n[i]));
            store_columns(g->out + (uint64_t)r * g->out_stride + i * PANEL_N, y, n[i]);
        }
    }
}

KERNEL_INLINE void gemm_rows(uint32_t n_panels, struct gemm g, uint32_t n_rows)
{
    uint32_t n;
    for (; n_rows > 0; n_rows -= n) {
        n = 1;
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

KERNEL_INLINE void linear_rows(enum dtype dtype, const struct linear_task *t, uint64_t panel_bytes)
{
    const uint32_t k = t->w->k;
    uint32_t n_panels;
    for (uint32_t i_panel = t->panel_begin; i_panel < t->panel_end; i_panel += n_panels) {
        n_panels = t->panel_end - i_panel >= GEMM_PANELS ? GEMM_PANELS : 1;
        uint32_t first_column = i_panel * PANEL_N, left = t->w->n - first_column;
        const uint8_t *data = (const uint8_t *)t->w->data + i_panel * panel_bytes;
        for (uint32_t k0 = 0; k0 < k; k0 += GEMM_KC) {
            struct gemm g = {.w = t->scratch,
                             .x = t->x + k0,
                             .x_stride = t->x_stride,
                             .out = t->out + first_column,
                             .out_stride = t->out_stride,
                             .n_k = k - k0 < GEMM_KC ? k - k0 : GEMM_KC,
                             .first = k0 == 0,
                             .n_columns = left < n_panels * PANEL_N ? left : n_panels * PANEL_N};
            if (t->bias && k0 + g.n_k == k)
                g.bias = t->bias + first_column;
            for (uint32_t i = 0; i < n_panels; i++)
                fmt_dequantize(dtype, data + i * panel_bytes + pack_panel_bytes(dtype, k0), g.n_k,
                               t->scratch + (uint64_t)i * g.n_k * PANEL_N);
            if (n_panels == GEMM_PANELS)
                gemm_wide(&g, t->n_rows);
            else
                gemm_narrow(&g, t->n_rows);
        }
    }
}

KERNEL_INLINE void linear_of(enum dtype dtype, const struct linear_task *task)
{
    uint64_t panel_bytes = pack_panel_bytes(dtype, task->w->k);
    if (task->n_rows >= GEMM_MIN_ROWS) {
        linear_rows(dtype, task, panel_bytes);
        return;
    }
    struct linear_task t = *task;
    for (uint32_t left = task->n_rows; left > 0; left -= t.n_rows) {
        t.n_rows = left < GEMV_MAX_ROWS ? left : GEMV_MAX_ROWS;
        if (t.n_rows == 1)
            linear_few_rows(dtype, GEMV_1, 1, &t, panel_bytes);
        else if (t.n_rows == 2)
            linear_few_rows(dtype, GEMV_2, 2, &t, panel_bytes);
        else if (GEMV_4 > 0 && t.n_rows <= 4)
            linear_few_rows(dtype, GEMV_4, 4, &t, panel_bytes);
        else if (GEMV_8 > 0)
            linear_few_rows(dtype, GEMV_8, 8, &t, panel_bytes);
        t.x += (uint64_t)t.n_rows * t.x_stride;
        t.out += (uint64_t)t.n_rows * t.out_stride;
    }
}

/* Reads the row's whole panel, 16 times what it needs: little next to a layer. */
KERNEL_INLINE void embed_of(enum dtype dtype, const struct weight *w, uint32_t id, float scale,
                            float *out)
{
    const uint8_t *p = (const uint8_t *)w->data + id / PANEL_N * pack_panel_bytes(dtype, w->k);
    float values[GEMM_KC * PANEL_N];
    for (uint32_t k0 = 0; k0 < w->k; k0 += GEMM_KC) {
        uint32_t n = w->k - k0 < GEMM_KC ? w->k - k0 : GEMM_KC;
        fmt_dequantize(dtype, p + pack_panel_bytes(dtype, k0), n, values);
        for (uint32_t i = 0; i < n; i++)
            out[k0 + i] = scale * values[i * PANEL_N + id % PANEL_N];
    }
}

static void linear_any(const struct linear_task *t)
{
    switch (t->w->dtype) {
    case DTYPE_F32:
        linear_of(DTYPE_F32, t);
        break;
    case DTYPE_F16:
        linear_of(DTYPE_F16, t);
        break;
    case DTYPE_BF16:
        linear_of(DTYPE_BF16, t);
        break;
    case DTYPE_Q8_0:
        linear_of(DTYPE_Q8_0, t);
        break;
    case DTYPE_Q4_0:
        linear_of(DTYPE_Q4_0, t);
        break;
    case DTYPE_Q5_0:
        linear_of(DTYPE_Q5_0, t);
        break;
    case DTYPE_Q4_K:
        linear_of(DTYPE_Q4_K, t);
        break;
    case DTYPE_Q5_K:
        linear_of(DTYPE_Q5_K, t);
        break;
    case DTYPE_Q6_K:
        linear_of(DTYPE_Q6_K, t);
        break;
    case DTYPE_INT4:
        linear_of(DTYPE_INT4, t);
        break;
    case DTYPE_FP8:
        linear_of(DTYPE_FP8, t);
        break;
    case DTYPE_MXFP4:
        linear_of(DTYPE_MXFP4, t);
        break;
    default:
        assert(!"weight_bytes is 0 for other types");
    }
}

static void embed_any(const struct weight *w, uint32_t id, float scale, float *out)
{
    switch (w->dtype) {
    case DTYPE_F32:
        embed_of(DTYPE_F32, w, id, scale, out);
        break;
    case DTYPE_F16:
        embed_of(DTYPE_F16, w, id, scale, out);
        break;
    case DTYPE_BF16:
        embed_of(DTYPE_BF16, w, id, scale, out);
        break;
    case DTYPE_Q8_0:
        embed_of(DTYPE_Q8_0, w, id, scale, out);
        break;
    case DTYPE_Q4_0:
        embed_of(DTYPE_Q4_0, w, id, scale, out);
        break;
    case DTYPE_Q5_0:
        embed_of(DTYPE_Q5_0, w, id, scale, out);
        break;
    case DTYPE_Q4_K:
        embed_of(DTYPE_Q4_K, w, id, scale, out);
        break;
    case DTYPE_Q5_K:
        embed_of(DTYPE_Q5_K, w, id, scale, out);
        break;
    case DTYPE_Q6_K:
        embed_of(DTYPE_Q6_K, w, id, scale, out);
        break;
    case DTYPE_INT4:
        embed_of(DTYPE_INT4, w, id, scale, out);
        break;
    case DTYPE_FP8:
        embed_of(DTYPE_FP8, w, id, scale, out);
        break;
    case DTYPE_MXFP4:
        embed_of(DTYPE_MXFP4, w, id, scale, out);
        break;
    default:
        assert(!"weight_bytes is 0 for other types");
    }
}
