#pragma once
/* Implements the kernels of one format for any vec/ISA.h, which is included before this header.
 * A file of formats instantiates them. With a few rows (decode), reading the weights is the
 * limit. gemv therefore dequantises in registers, with several panels side by side and one
 * accumulator for each panel and row. The independent chains of FMAs hide the FMA latency. With
 * more rows, only dequantize is needed (linear_impl.h). Rare formats have a gemv of one row
 * only, since each instance costs a second to compile. */
#include "kernels/cpu/formats/columns_impl.h"
#include "kernels/cpu/formats/formats.h"
#include "kernels/cpu/formats/formats_impl.h"

enum { PREFETCH_BYTES = 2048 };

KERNEL_INLINE uint32_t columns_of_panel(const struct linear_task *t, uint32_t i_panel)
{
    uint32_t left = t->w->n - i_panel * PANEL_N;
    return left < PANEL_N ? left : PANEL_N;
}
/* `gemv` holds the rows and panels of one gemv. Their numbers are constants, so the last row or
 * panel may be repeated; the caller stores it once. */
struct gemv {
    const float *x[GEMV_MAX_ROWS];
    const uint8_t *panels[GEMV_1];
    uint32_t k;
    uint64_t panel_bytes;
    vf acc[GEMV_MAX_ROWS][GEMV_1];
};

/* Prefetches the data that is read PREFETCH_BYTES later. Beyond the end of this panel, it
 * prefetches the panel at the same place among the next n_panels. The hardware's own prefetch
 * stops at every panel's end. */
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
    const uint32_t left = g->k % 8;
    for (uint32_t k = 0; fmt_is_plain(dtype) && k < left; k++)
        for (uint32_t i = 0; i < n_panels; i++)
            for (uint32_t r = 0; r < n_rows; r++)
                acc[r][i] =
                    vf_fma(vf_set1(x[r][at + k]), fmt_plain(dtype, p[i], k, left), acc[r][i]);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n_panels; i++)
            g->acc[r][i] = acc[r][i];
}

/* Multiplies n_rows <= max_rows rows, with `wide` panels side by side. `wide` and `max_rows` are
 * constants. */
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

/* Multiplies any number of rows, up to GEMV_MAX_ROWS at a time. */
KERNEL_INLINE void linear_some_rows(enum dtype dtype, const struct linear_task *task,
                                    uint64_t panel_bytes)
{
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

#define FORMAT_DEQUANTIZE(dtype)                                                                   \
    static void dequantize_##dtype(const uint8_t *p, uint32_t k, float *out)                       \
    {                                                                                              \
        fmt_dequantize(DTYPE_##dtype, p, k, out);                                                  \
    }
#define FORMAT_ALL_ROWS(dtype)                                                                     \
    FORMAT_DEQUANTIZE(dtype)                                                                       \
    static void few_##dtype(const struct linear_task *t, uint64_t panel_bytes)                     \
    {                                                                                              \
        linear_some_rows(DTYPE_##dtype, t, panel_bytes);                                           \
    }                                                                                              \
    static const struct format_kernels format_##dtype = {4 * GEMV_MAX_ROWS, few_##dtype,           \
                                                         dequantize_##dtype};
#define FORMAT_RARE(dtype)                                                                         \
    FORMAT_DEQUANTIZE(dtype)                                                                       \
    static void few_##dtype(const struct linear_task *t, uint64_t panel_bytes)                     \
    {                                                                                              \
        linear_few_rows(DTYPE_##dtype, GEMV_1, 1, t, panel_bytes);                                 \
    }                                                                                              \
    static const struct format_kernels format_##dtype = {1, few_##dtype, dequantize_##dtype};

/* With sanitizers an instance takes ten times as long to compile. In such builds only F32 has a
 * gemv of several rows. */
#ifdef COX_SANITIZED
#define FORMAT_USUAL FORMAT_RARE
#else
#define FORMAT_USUAL FORMAT_ALL_ROWS
#endif

/* FORMATS_PLAIN and the macros below list the kinds of formats. Each kind has a separate file
 * for each ISA. */
#define FORMATS_PLAIN(do_)  do_(F32) do_(F16) do_(BF16)
#define FORMATS_BLOCKS(do_) do_(Q8_0) do_(Q4_0) do_(Q5_0) do_(MXFP4)
#define FORMATS_K(do_)      do_(Q4_K) do_(Q5_K) do_(Q6_K)
#define FORMATS_OURS(do_)   do_(INT4) do_(INT8) do_(FP8)
#define FORMATS_RARE(do_)   do_(Q4_1) do_(Q5_1) do_(IQ4_NL) do_(Q2_K) do_(Q3_K) do_(INT2) do_(INT3)

#define FORMAT_ENTRY(dtype)       [DTYPE_##dtype] = &format_##dtype,
#define FORMAT_TABLE(name, list_) const format_table name = {list_(FORMAT_ENTRY)}
