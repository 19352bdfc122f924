#pragma once
/* Makes random matrices in the layout of a file, and packed. Scales are moderate numbers, and
 * all other bits are random. */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/pack/pack.h"
#include "kernels/host/f16.h"

static const enum dtype packed_dtypes[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q5_0,  DTYPE_Q4_1,
    DTYPE_Q5_1, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,  DTYPE_IQ4_NL,
    DTYPE_INT2, DTYPE_INT3, DTYPE_INT4, DTYPE_INT8, DTYPE_FP8,  DTYPE_MXFP4,
};
enum { N_PACKED_DTYPES = sizeof packed_dtypes / sizeof *packed_dtypes };

struct matrix {
    struct weight w;
    struct weight_rows rows; /* rows of the matrix at an unaligned address */
    uint8_t *memory;
};

static float random_float(struct rng *r)
{
    return ((float)rng_below(r, 1u << 24) - 0x1p23f) * 0x1p-23f; /* the number is in [-1, 1) */
}

static void random_f16(struct rng *r, uint8_t *p)
{
    uint16_t h = f16_from_f32(random_float(r) * 0.0625f);
    memcpy(p, &h, sizeof h);
}

static void random_block(struct rng *r, enum dtype dtype, uint8_t *p)
{
    float f = random_float(r);
    uint32_t n_bytes = dtype_traits(dtype).block_bytes;
    for (uint32_t i = 0; i < n_bytes; i++)
        p[i] = (uint8_t)rng_next(r);
    switch (dtype) {
    case DTYPE_F32:
        memcpy(p, &f, 4);
        break;
    case DTYPE_BF16:
        memcpy(p, (uint8_t *)&f + 2, 2);
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        random_f16(r, p + 2);
        random_f16(r, p);
        break;
    case DTYPE_Q2_K:
        random_f16(r, p + 80);
        random_f16(r, p + 82);
        break;
    case DTYPE_Q3_K:
        random_f16(r, p + 108);
        break;
    case DTYPE_Q6_K:
        random_f16(r, p + 208);
        break;
    case DTYPE_INT2:
    case DTYPE_INT3:
    case DTYPE_INT4:
        random_f16(r, p);
        p[2] %= 17;
        break;
    case DTYPE_INT8:
        f *= 0x1p-9f;
        memcpy(p, &f, 4);
        break;
    case DTYPE_FP8:
        f *= 0x1p-12f;
        memcpy(p, &f, 4);
        break;
    case DTYPE_MXFP4:
        p[0] = (uint8_t)(118 + p[0] % 6);
        break;
    default:
        random_f16(r, p);
    }
}

static struct matrix matrix_new(struct rng *r, enum dtype dtype, uint32_t n, uint32_t k)
{
    struct dtype_traits traits = dtype_traits(dtype);
    uint64_t stride = (uint64_t)k / traits.block_elems * traits.block_bytes + 3;
    struct matrix m = {.w = {.dtype = dtype, .n = n, .k = k}};
    m.memory = mem_array(n * stride + 1, 1);
    m.rows = (struct weight_rows){m.memory + 1, stride};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < k / traits.block_elems; j++)
            random_block(r, dtype, m.memory + 1 + i * stride + (uint64_t)j * traits.block_bytes);
    uint32_t n_panels = (n + PANEL_N - 1) / PANEL_N;
    m.w.n_bytes = n_panels * pack_panel_bytes(dtype, k);
    m.w.data = mem_array(m.w.n_bytes, 1);
    memset(m.w.data, 0xa5, m.w.n_bytes);
    for (uint32_t i = 0; i < n_panels; i++)
        pack_panel(&m.w, &m.rows, i);
    return m;
}

static void matrix_free(struct matrix *m)
{
    mem_free(m->memory);
    mem_free(m->w.data);
}
