#pragma once
/* Holds rows and matrices on both sides, and compares them. The CPU has floats that bfloat16 can
 * hold; the device has bfloat16. */
#include <math.h>

#include "kernels/cuda/moe/abi.h"
#include "kernels/cuda/weights/pack.h"
#include "tests/cuda/rig/gpu_rig.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

/* `both` holds rows on both sides. Memory between the rows must stay unchanged. */
struct both {
    uint32_t n_rows, dim, stride;
    float *host;
    uint16_t *before; /* content on the device before the operator */
    uint8_t *memory;
    struct view cpu, gpu;
};

/* Makes rows on both sides. offset is the number of elements before the first row; 1 breaks the
 * alignment. */
static struct both both_new(struct rig *r, uint32_t n_rows, uint32_t dim, uint32_t pad,
                            uint32_t offset)
{
    struct both b = {.n_rows = n_rows, .dim = dim, .stride = dim + pad};
    const uint64_t n = (uint64_t)n_rows * b.stride + offset;
    b.host = mem_array(n, sizeof *b.host);
    b.before = mem_array(n, sizeof *b.before);
    for (uint64_t i = 0; i < n; i++) {
        b.before[i] = to_bf16(random_float(&r->rng));
        b.host[i] = from_bf16(b.before[i]);
    }
    b.memory = on_device(r, b.before, n * 2);
    b.cpu = (struct view){b.host + offset, b.stride};
    b.gpu = (struct view){b.memory + (size_t)offset * 2, b.stride};
    return b;
}

static void both_free(struct rig *r, struct both *b)
{
    mem_free(b->host);
    mem_free(b->before);
    gpu_release(r->gpu, b->memory);
}

/* MOST_RMS and the bounds below are error bounds. Results are rounded to bfloat16, and so are
 * the numbers between two products and, in large tiles, a code times its scale. Each rounding is
 * off by 0.11 % at random (2^-9 / sqrt(3)), four of them by 0.25 %. The error of all elements
 * together shows a missing input or scale. The error of one element shows a misplaced element. */
#define MOST_RMS 0.005 /* fraction of the result's root mean square */
/* MOST_OF_ROW is a fraction of the row's root mean square, for a sum of much larger elements. */
#define MOST_OF_ROW  0x1p-4
#define MOST_OF_SELF 0x1p-7

static void both_compare(struct rig *r, const struct both *b)
{
    const uint64_t offset = (uint64_t)((uint8_t *)b->gpu.data - b->memory) / 2;
    const uint64_t n = (uint64_t)b->n_rows * b->stride + offset;
    uint16_t *got = mem_array(n, sizeof *got);
    double all = 0, off = 0;
    from_device(r, got, b->memory, n * 2);
    for (uint64_t i = 0; i < n; i++)
        if ((i < offset || (i - offset) % b->stride >= b->dim) && got[i] != b->before[i])
            failed(r, "written beside a row", got[i], b->before[i], i);
    for (uint32_t row = 0; row < b->n_rows; row++) {
        const float *want = b->host + offset + (uint64_t)row * b->stride;
        const uint16_t *have = got + offset + (uint64_t)row * b->stride;
        double squares = 0;
        for (uint32_t i = 0; i < b->dim; i++)
            squares += (double)want[i] * (double)want[i];
        const double most = MOST_OF_ROW * sqrt(squares / b->dim);
        for (uint32_t i = 0; i < b->dim; i++) {
            const double v = (double)from_bf16(have[i]), w = (double)want[i];
            off += (v - w) * (v - w);
            if (!(fabs(v - w) <= fabs(w) * MOST_OF_SELF + most))
                failed(r, "value", v, w, (uint64_t)row * b->dim + i);
        }
        all += squares;
    }
    if (!(sqrt(off) <= MOST_RMS * sqrt(all)))
        failed(r, "off in all", sqrt(off), sqrt(all), 0);
    mem_free(got);
}

/* `both_weight` is one matrix on both sides. */
struct both_weight {
    struct matrix cpu;
    struct weight gpu;
};

/* Copies the scale and zero of a group's first block to all blocks of the group. */
static void share_scales(struct matrix *m, uint32_t group)
{
    const struct dtype_traits t = dtype_traits(m->w.dtype);
    const uint32_t n_scale = m->w.dtype == DTYPE_INT8 ? 5 : 4;
    for (uint32_t i = 0; i < m->w.n; i++) {
        uint8_t *row = m->memory + 1 + i * m->rows.stride_bytes;
        for (uint32_t b = 0; b < m->w.k / t.block_elems; b++)
            memmove(row + b * t.block_bytes,
                    row + b * t.block_elems / group * group / t.block_elems * t.block_bytes,
                    n_scale);
    }
    for (uint32_t i = 0; i < (m->w.n + PANEL_N - 1) / PANEL_N; i++)
        pack_panel(&m->w, &m->rows, i);
}

/* Makes a matrix on both sides. A group above 32 is possible for INT4, INT8 and FP8. */
static struct both_weight weight_new(struct rig *r, enum dtype dtype, uint32_t n, uint32_t k,
                                     uint32_t group)
{
    struct both_weight w = {.cpu = matrix_new(&r->rng, dtype, n, k)};
    struct gpu_matrix m;
    if (group)
        share_scales(&w.cpu, group);
    w.gpu = w.cpu.w;
    w.gpu.group = group;
    if (!gpu_matrix_of(dtype, n, k, group, NULL, &m)) {
        fprintf(stderr, "%s: no kernel for %s\n", r->name, dtype_traits(dtype).name);
        exit(1);
    }
    w.gpu.n_bytes = gpu_matrix_bytes(&m);
    uint8_t *packed = mem_array(w.gpu.n_bytes, 1);
    for (uint32_t i = 0; i < (n + GPU_TILE_N - 1) / GPU_TILE_N; i++)
        gpu_pack_tile(&m, dtype, &w.cpu.rows, i, packed + (uint64_t)i * m.tile_bytes);
    w.gpu.data = on_device(r, packed, w.gpu.n_bytes);
    mem_free(packed);
    return w;
}

static void weight_free(struct rig *r, struct both_weight *w)
{
    matrix_free(&w->cpu);
    gpu_release(r->gpu, w->gpu.data);
}

static struct cuda_room room_new(struct rig *r, uint64_t n_bytes)
{
    /* No operator may use memory that it has not written. The fill value is an index beyond all
     * memory. */
    uint8_t *fill = mem_array(n_bytes + 1, 1);
    memset(fill, 0x7f, n_bytes);
    const struct cuda_room room = {on_device(r, fill, n_bytes), n_bytes};
    mem_free(fill);
    return room;
}
