/* Tests products with packed weights (linear/abi.h) against sums in double over the numbers that
 * the CPU reads from the same rows (dequantize_row). Activations are bfloat16. The results may
 * differ by the rounding of the result, of float sums, and of packing (pack.h). Cases: every
 * dtype, several parts, odd sizes and strides, few rows and many; embeddings, and columns in
 * another order. The test runs on a device and over the emulation.
 *   linear_test          all cases; exit status 0 passed, 1 failures, 77 no device
 *   linear_test --small  the cases that the emulation runs in seconds */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/linear/abi.h"
#include "kernels/cuda/rows/abi.h"
#include "kernels/cuda/weights/pack.h"
#include "kernels/host/blocks.h"
#include "kernels/host/narrow.h"
#include "tests/cuda/rig/gpu_open.h"

#define SCRATCH_BYTES (GPU_BLAS_WORKSPACE + ((uint64_t)1 << 20))
#define POISON        0x5a

struct rig {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_linear *linear;
    void *scratch;
    struct rng rng;
    unsigned n_failures, n_cases;
};

enum { AS_FEW, AS_MANY };
struct linear_case {
    enum dtype dtype;
    uint32_t k, group, n[3], n_rows;
    /* in elements: x_pad and out_pad are between rows, offset before the first row */
    uint32_t x_pad, out_pad, offset;
    int way;
    bool to_float, bias;
};

/* ---- weights in the layout of files ---- */

/* `tame` holds the places in a block of the numbers that random bytes would make huge. */
struct tame {
    /* bytes from the block's start; -1: the block has no such number */
    int half[2], single, exponent, zero;
};
static struct tame tame_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return (struct tame){{0, 2}, -1, -1, -1};
    case DTYPE_Q2_K:
        return (struct tame){{80, 82}, -1, -1, -1};
    case DTYPE_Q3_K:
        return (struct tame){{108, -1}, -1, -1, -1};
    case DTYPE_Q6_K:
        return (struct tame){{208, -1}, -1, -1, -1};
    case DTYPE_INT2:
    case DTYPE_INT3:
    case DTYPE_INT4:
        return (struct tame){{0, -1}, -1, -1, 2};
    case DTYPE_INT8:
    case DTYPE_FP8:
        return (struct tame){{-1, -1}, 0, -1, -1};
    case DTYPE_MXFP4:
        return (struct tame){{-1, -1}, -1, 0, -1};
    default:
        return (struct tame){{0, -1}, -1, -1, -1};
    }
}

static void fill_block(struct rig *r, enum dtype dtype, uint8_t *block)
{
    struct dtype_traits traits = dtype_traits(dtype);
    struct tame t = tame_of(dtype);
    for (uint32_t i = 0; i < traits.block_bytes; i++)
        block[i] = (uint8_t)(rng_next(&r->rng) >> 32);
    for (int i = 0; i < 2; i++) {
        uint16_t half =
            /* this is a number of about 2^-7, with either sign */
            (uint16_t)((rng_next(&r->rng) & 0x83ff) | 0x2000);
        if (t.half[i] >= 0)
            memcpy(block + t.half[i], &half, sizeof half);
    }
    float single = random_unit(&r->rng) * 0x1p-5f;
    if (t.single >= 0)
        memcpy(block + t.single, &single, sizeof single);
    if (t.exponent >= 0)
        block[t.exponent] = (uint8_t)(118 + rng_next(&r->rng) % 6);
    if (t.zero >= 0)
        block[t.zero] %= 17;
}

/* Fills a row with random bytes. All blocks of one group get the scale of the first block. */
static void fill_row(struct rig *r, enum dtype dtype, uint32_t k, uint32_t group, uint8_t *row)
{
    struct dtype_traits traits = dtype_traits(dtype);
    for (uint32_t i = 0; i < k && traits.block_elems == 1; i++) {
        float v = random_unit(&r->rng);
        uint32_t bits = narrow_bits(v);
        uint16_t half = dtype == DTYPE_F16 ? (uint16_t)((rng_next(&r->rng) & 0xbfff) & ~0x4000u)
                                           : (uint16_t)(bits >> 16);
        memcpy(row + (size_t)i * traits.block_bytes, dtype == DTYPE_F32 ? (void *)&bits : &half,
               traits.block_bytes);
    }
    uint32_t head = dtype == DTYPE_INT8 ? 5 : 4;
    for (uint32_t i = 0; traits.block_elems > 1 && i < k / traits.block_elems; i++) {
        uint8_t *block = row + (size_t)i * traits.block_bytes;
        fill_block(r, dtype, block);
        if (group > 0 && i * traits.block_elems % group != 0)
            memcpy(block, block - traits.block_bytes, head);
    }
}

struct matrix {
    struct gpu_matrix packed;
    uint8_t *rows;
    uint64_t row_bytes;
    void *device;
};

static struct matrix matrix_new(struct rig *r, enum dtype dtype, uint32_t n, uint32_t k,
                                uint32_t group)
{
    struct matrix m = {0};
    struct error err;
    if (!dtype_bytes(dtype, k, 1, &m.row_bytes) ||
        !gpu_matrix_of(dtype, n, k, group, NULL, &m.packed)) {
        fprintf(stderr, "linear_test: no layout of %s, k %u\n", dtype_traits(dtype).name, k);
        exit(1);
    }
    uint64_t n_bytes = gpu_matrix_bytes(&m.packed);
    uint8_t *host = mem_array(n_bytes, 1);
    m.rows = mem_array(n, m.row_bytes);
    for (uint32_t i = 0; i < n; i++)
        fill_row(r, dtype, k, group, m.rows + i * m.row_bytes);
    memset(host, POISON, n_bytes);
    for (uint32_t i = 0; i * GPU_TILE_N < n; i++)
        gpu_pack_tile(&m.packed, dtype, &(struct weight_rows){m.rows, m.row_bytes}, i,
                      host + (size_t)i * m.packed.tile_bytes);
    must(gpu_alloc(r->device, n_bytes, &m.device, &err), &err, "gpu_alloc");
    must(gpu_copy_to_device(r->stream, m.device, host, n_bytes, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    (void)gpu_matrix_of(dtype, n, k, group, m.device, &m.packed);
    mem_free(host);
    return m;
}
static void matrix_free(struct rig *r, struct matrix *m)
{
    gpu_release(r->device, m->device);
    mem_free(m->rows);
}

/* Reads a row with the rounding that packing does to plain numbers. */
static void matrix_row(const struct matrix *m, enum dtype dtype, uint32_t i, float *out)
{
    (void)dequantize_row(dtype, m->rows + i * m->row_bytes, m->packed.k, out);
    for (uint32_t k = 0; k < m->packed.k && m->packed.format == GPU_BF16; k++)
        out[k] = from_bf16(bf16_from_f32(out[k]));
}

/* Returns the largest error of a weight, relative to the weight or to the largest term of its
 * value. */
static double weight_error(const struct linear_case *c, enum gpu_format f)
{
    bool rounded = c->dtype == DTYPE_Q4_K || c->dtype == DTYPE_Q2_K || c->dtype == DTYPE_Q3_K;
    return c->way == AS_MANY && f != GPU_BF16 ? 0x1p-8 : rounded ? 0x1p-9 : 0x1p-19;
}

/* ---- one case ---- */

struct rows {
    uint64_t n_elems;
    uint32_t stride;
    uint16_t *host;
    void *device;
};

static struct rows rows_new(struct rig *r, const struct linear_case *c)
{
    struct rows x = {.stride = c->k + c->x_pad};
    struct error err;
    x.n_elems = (uint64_t)c->n_rows * x.stride + c->offset;
    x.host = mem_array(x.n_elems, sizeof *x.host);
    for (uint64_t i = 0; i < x.n_elems; i++) /* elements outside of rows are NaN */
        x.host[i] = i < c->offset || (i - c->offset) % x.stride >= c->k
                        ? 0x7fc0
                        : bf16_from_f32(random_unit(&r->rng));
    must(gpu_alloc(r->device, x.n_elems * 2, &x.device, &err), &err, "gpu_alloc");
    must(gpu_copy_to_device(r->stream, x.device, x.host, x.n_elems * 2, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    return x;
}

static void fail(struct rig *r, const struct linear_case *c, const char *what)
{
    if (r->n_failures++ < 20)
        printf("FAILED: %s, k %u, group %u, n %u %u %u, %u rows, pads %u %u, offset %u, %s%s: %s\n",
               dtype_traits(c->dtype).name, c->k, c->group, c->n[0], c->n[1], c->n[2], c->n_rows,
               c->x_pad, c->out_pad, c->offset, c->way == AS_MANY ? "many" : "few",
               c->to_float ? ", float" : "", what);
}

/* Checks one output in all rows. */
static void check_output(struct rig *r, const struct linear_case *c, const struct matrix *m,
                         uint32_t i, const float *bias, const struct rows *x, const uint8_t *out)
{
    float *w = mem_array(c->k, sizeof *w);
    double off = weight_error(c, m->packed.format);
    uint32_t bytes = c->to_float ? 4 : 2, stride = m->packed.n + c->out_pad;
    matrix_row(m, c->dtype, i, w);
    for (uint32_t row = 0; row < c->n_rows; row++) {
        const uint16_t *from = x->host + c->offset + (size_t)row * x->stride;
        double want = bias ? (double)bias[i] : 0, size = fabs(want);
        for (uint32_t k = 0; k < c->k; k++) {
            want += (double)w[k] * (double)from_bf16(from[k]);
            size += fabs((double)w[k] * (double)from_bf16(from[k]));
        }
        const uint8_t *at = out + ((size_t)row * stride + i) * bytes;
        float got;
        uint16_t half;
        memcpy(&half, at, sizeof half);
        got = from_bf16(half);
        if (c->to_float)
            memcpy(&got, at, sizeof got);
        double limit = (c->to_float ? 0 : fabs(want) * 0x1.01p-8) + size * off + 1e-30;
        /* with many rows, only 16 bits of the bias's fraction are added */
        if (bias && c->way == AS_MANY)
            limit += fabs((double)bias[i]) * 0x1p-17;
        if (!(fabs((double)got - want) <= limit)) {
            char text[160];
            snprintf(text, sizeof text, "row %u output %u: %.9g, want %.9g +- %.3g", row, i,
                     (double)got, want, limit);
            fail(r, c, text);
            break;
        }
    }
    mem_free(w);
}

static bool is_poison(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != POISON)
            return false;
    return true;
}

static void run_case(struct rig *r, const struct linear_case *c)
{
    struct matrix m[3];
    struct error err;
    struct rows x = rows_new(r, c);
    struct gpu_products p = {.x = {(uint16_t *)x.device + c->offset, x.stride},
                             .n_rows = c->n_rows,
                             .scratch = r->scratch,
                             .scratch_bytes = SCRATCH_BYTES};
    uint32_t bytes = c->to_float ? 4 : 2;
    uint8_t *out[3];
    size_t n_bytes[3];
    float *bias[3] = {0};
    void *d_bias[3] = {0};
    r->n_cases++;
    for (uint32_t i = 0; i < 3 && c->n[i] > 0; i++, p.n_parts++) {
        m[i] = matrix_new(r, c->dtype, c->n[i], c->k, c->group);
        n_bytes[i] = (size_t)c->n_rows * (c->n[i] + c->out_pad) * bytes;
        out[i] = mem_array(n_bytes[i] + 1, 1);
        memset(out[i], POISON, n_bytes[i]);
        void *d_out;
        must(gpu_alloc(r->device, n_bytes[i] + 1, &d_out, &err), &err, "gpu_alloc");
        must(gpu_copy_to_device(r->stream, d_out, out[i], n_bytes[i], &err), &err, "copy");
        if (c->bias && i != 1) {
            bias[i] = mem_array(c->n[i], sizeof(float));
            /* some of these numbers are far from a bfloat16 number */
            for (uint32_t j = 0; j < c->n[i]; j++)
                bias[i][j] = j % 3 == 0 ? 300.9f : random_unit(&r->rng);
            must(gpu_alloc(r->device, c->n[i] * 4, &d_bias[i], &err), &err, "gpu_alloc");
            must(gpu_copy_to_device(r->stream, d_bias[i], bias[i], c->n[i] * 4, &err), &err,
                 "copy");
        }
        p.parts[i] = (struct gpu_product){
            m[i].packed, d_bias[i], {d_out, c->n[i] + c->out_pad}, c->to_float};
    }
    must(c->way == AS_MANY ? cuda_linear_many(r->linear, &p, &err)
                           : cuda_linear_few(r->linear, &p, &err),
         &err, "linear");
    for (uint32_t i = 0; i < p.n_parts; i++)
        must(gpu_copy_from_device(r->stream, out[i], p.parts[i].out.data, n_bytes[i], &err), &err,
             "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    for (uint32_t i = 0; i < p.n_parts; i++) {
        uint32_t step = c->n[i] > 300 ? 7 : 1;
        for (uint32_t j = 0; j < c->n[i]; j += step)
            check_output(r, c, &m[i], j, bias[i], &x, out[i]);
        for (uint32_t row = 0; row < c->n_rows && c->out_pad > 0; row++)
            if (!is_poison(out[i] + ((size_t)row * (c->n[i] + c->out_pad) + c->n[i]) * bytes,
                           (size_t)c->out_pad * bytes))
                fail(r, c, "wrote beside a row");
        gpu_release(r->device, p.parts[i].out.data);
        gpu_release(r->device, d_bias[i]);
        matrix_free(r, &m[i]);
        mem_free(out[i]);
        mem_free(bias[i]);
    }
    gpu_release(r->device, x.device);
    mem_free(x.host);
}

/* ---- gate and up with their activation ---- */

struct gated_case {
    enum dtype dtype;
    uint32_t k, group, n, n_rows;
    enum activation act;
    bool bias, is_same_cut; /* is_same_cut: one launch cuts K as two launches do */
};

static void *device_copy(struct rig *r, const void *from, size_t n_bytes)
{
    struct error err;
    void *to;
    must(gpu_alloc(r->device, n_bytes, &to, &err), &err, "gpu_alloc");
    must(gpu_copy_to_device(r->stream, to, from, n_bytes, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    return to;
}

static void download(struct rig *r, void *to, const void *from, size_t n_bytes)
{
    struct error err;
    must(gpu_copy_from_device(r->stream, to, from, n_bytes, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
}

/* One launch must give the bits of two launches. If K may be cut in another way, nearly all bits
 * must agree, and the numbers must be near. The launch may not write outside of the result, nor
 * to the place of up. */
static void run_gated(struct rig *r, const struct gated_case *c)
{
    enum { PAD = 3 };
    const struct linear_case plain = {
        .dtype = c->dtype, .k = c->k, .group = c->group, .n = {c->n, c->n}, .n_rows = c->n_rows};
    const uint32_t width = c->n + PAD;
    const size_t n = (size_t)c->n_rows * width;
    struct error err;
    struct rows x = rows_new(r, &plain);
    struct matrix m[2];
    float *bias = mem_array(c->n, sizeof *bias);
    uint16_t *out[4]; /* result and up of one launch, then result and up of two launches */
    void *d_out[4], *d_bias[2];
    r->n_cases++;
    struct gpu_products one = {.x = {x.device, x.stride},
                               .n_rows = c->n_rows,
                               .n_parts = 2,
                               .scratch = r->scratch,
                               .scratch_bytes = SCRATCH_BYTES};
    struct gpu_products two = one;
    one.is_gated = true, one.act = c->act, one.limit = 0.4f;
    for (int i = 0; i < 4; i++) {
        out[i] = mem_array(n, sizeof *out[i]);
        memset(out[i], POISON, n * sizeof *out[i]);
        d_out[i] = device_copy(r, out[i], n * sizeof *out[i]);
    }
    for (int i = 0; i < 2; i++) {
        m[i] = matrix_new(r, c->dtype, c->n, c->k, c->group);
        for (uint32_t j = 0; j < c->n; j++)
            bias[j] = random_unit(&r->rng);
        d_bias[i] = c->bias ? device_copy(r, bias, c->n * sizeof *bias) : NULL;
        one.parts[i] = (struct gpu_product){m[i].packed, d_bias[i], {d_out[i], width}, false};
        two.parts[i] = (struct gpu_product){m[i].packed, d_bias[i], {d_out[2 + i], width}, false};
    }
    const struct gated_params act = {.gate = {d_out[2], width},
                                     .up = {d_out[3], width},
                                     .out = {d_out[2], width},
                                     .n_rows = c->n_rows,
                                     .dim = c->n,
                                     .act = c->act,
                                     .limit = one.limit};
    must(cuda_linear_few(r->linear, &one, &err), &err, "one launch");
    must(cuda_linear_few(r->linear, &two, &err), &err, "two launches");
    must(cuda_gated(r->stream, &act, &err), &err, "gated");
    for (int i = 0; i < 4; i++)
        download(r, out[i], d_out[i], n * sizeof *out[i]);
    unsigned n_other = 0, n_far = 0, n_written = 0;
    for (size_t i = 0; i < n; i++) {
        const double got = (double)narrow_float((uint32_t)out[0][i] << 16);
        const double want = (double)narrow_float((uint32_t)out[2][i] << 16);
        n_other += out[0][i] != out[2][i];
        n_far += i % width < c->n && !(fabs(got - want) <= fabs(want) * 0x1p-5 + 1e-3);
        n_written += i % width >= c->n && out[0][i] != (POISON << 8 | POISON);
        n_written += out[1][i] != (POISON << 8 | POISON);
    }
    if (n_far > 0 || n_other > (c->is_same_cut ? 0 : n / 50 + 1))
        fail(r, &plain, "gate, up and activation in one launch are not those of two");
    if (n_written > 0)
        fail(r, &plain, "a gated product wrote beside its result");
    for (int i = 0; i < 4; i++) {
        gpu_release(r->device, d_out[i]);
        mem_free(out[i]);
    }
    for (int i = 0; i < 2; i++) {
        gpu_release(r->device, d_bias[i]);
        matrix_free(r, &m[i]);
    }
    gpu_release(r->device, x.device);
    mem_free(x.host);
    mem_free(bias);
}

/* Tests every format, the row counts of each kernel, and K with splits (few outputs, many
 * inputs) and without. Outputs end inside of a row tile, in an odd number of tiles, and in an
 * odd number of blocks. */
static void run_all_gated(struct rig *r)
{
    static const struct gated_case all[] = {
        {DTYPE_BF16, 512, 0, 33, 1, ACT_SILU, false, false},
        {DTYPE_BF16, 4096, 0, 16, 3, ACT_GELU_TANH, true, false},
        {DTYPE_BF16, 200, 0, 150, 9, ACT_SWIGLU_LIMITED, true, false},
        {DTYPE_BF16, 136, 0, 272, 30, ACT_SILU, false, false},
        {DTYPE_BF16, 64, 0, 5, 64, ACT_SILU, true, false},
        {DTYPE_INT4, 512, 128, 48, 2, ACT_SILU, false, true},
        {DTYPE_INT4, 512, 128, 40, 70, ACT_GELU_TANH, true, false},
        {DTYPE_INT4, 256, 32, 100, 20, ACT_SILU, false, true},
        {DTYPE_Q4_K, 2048, 0, 17, 1, ACT_SILU, true, true},
        {DTYPE_Q4_K, 256, 0, 80, 50, ACT_SWIGLU_LIMITED, false, false},
        {DTYPE_Q8_0, 256, 0, 96, 8, ACT_SILU, false, true},
        {DTYPE_Q6_K, 256, 0, 24, 33, ACT_SILU, true, false},
        {DTYPE_INT8, 256, 128, 40, 6, ACT_SILU, false, true},
        {DTYPE_FP8, 256, 128, 130, 17, ACT_SILU, true, true},
        {DTYPE_MXFP4, 256, 0, 64, 5, ACT_SWIGLU_LIMITED, true, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        run_gated(r, &all[i]);
}

/* ---- rows and columns ---- */

static void run_embed(struct rig *r, enum dtype dtype, uint32_t n, uint32_t k, uint32_t group)
{
    enum { N_IDS = 7, FIRST = 5 };
    const uint32_t ids[N_IDS] = {FIRST,     FIRST + n - 1, 0,        FIRST + n,
                                 FIRST + 9, UINT32_MAX,    FIRST + 2};
    struct matrix m = matrix_new(r, dtype, n, k, group);
    struct error err;
    uint32_t stride = k + 3;
    uint16_t *out = mem_array((size_t)N_IDS * stride, sizeof *out);
    float *row = mem_array(k, sizeof *row);
    void *d_out, *d_ids;
    struct linear_case c = {.dtype = dtype, .k = k, .n = {n}, .n_rows = N_IDS};
    must(gpu_alloc(r->device, (uint64_t)N_IDS * stride * 2, &d_out, &err), &err, "gpu_alloc");
    must(gpu_alloc(r->device, sizeof ids, &d_ids, &err), &err, "gpu_alloc");
    must(gpu_copy_to_device(r->stream, d_ids, ids, sizeof ids, &err), &err, "copy");
    const struct embed_params p = {{d_out, stride}, NULL, d_ids, N_IDS, FIRST, 1.5f};
    must(cuda_embed(r->stream, &m.packed, &p, &err), &err, "embed");
    must(gpu_copy_from_device(r->stream, out, d_out, (uint64_t)N_IDS * stride * 2, &err), &err,
         "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    double off = weight_error(&c, m.packed.format);
    for (uint32_t i = 0; i < N_IDS; i++) {
        bool here = ids[i] >= FIRST && ids[i] - FIRST < n;
        if (here)
            matrix_row(&m, dtype, ids[i] - FIRST, row);
        for (uint32_t j = 0; j < stride; j++) {
            double want = here && j < k ? 1.5 * (double)row[j] : 0,
                   got = (double)from_bf16(out[i * stride + j]);
            /* A weight of the K formats is a difference, so the bound is relative to the size of
             * 15 codes. */
            if (!(fabs(got - want) <=
                  fabs(want) * 0x1.01p-8 + (off > 0x1p-19 ? 16 * off * 0.1 : 0) + 1e-6)) {
                fail(r, &c, "embedding");
                i = N_IDS;
                break;
            }
        }
    }
    r->n_cases++;
    gpu_release(r->device, d_out);
    gpu_release(r->device, d_ids);
    matrix_free(r, &m);
    mem_free(out);
    mem_free(row);
}

static void run_columns(struct rig *r)
{
    enum { K = 45, N = 70, ROWS = 3 };
    struct linear_case c = {.k = K, .n_rows = ROWS, .x_pad = 2};
    struct rows x = rows_new(r, &c);
    struct error err;
    uint32_t order[N];
    uint16_t out[ROWS][N];
    void *d_order, *d_out;
    for (uint32_t i = 0; i < N; i++)
        order[i] = rng_next(&r->rng) % 5 == 0 ? WEIGHT_NO_INPUT : (uint32_t)(rng_next(&r->rng) % K);
    must(gpu_alloc(r->device, sizeof order, &d_order, &err), &err, "gpu_alloc");
    must(gpu_alloc(r->device, sizeof out, &d_out, &err), &err, "gpu_alloc");
    must(gpu_copy_to_device(r->stream, d_order, order, sizeof order, &err), &err, "copy");
    must(cuda_gather_columns(r->stream, (struct view){d_out, N}, (struct view){x.device, x.stride},
                             d_order, ROWS, N, &err),
         &err, "gather_columns");
    must(gpu_copy_from_device(r->stream, out, d_out, sizeof out, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < N; j++)
            if (out[i][j] != (order[j] == WEIGHT_NO_INPUT ? 0 : x.host[i * x.stride + order[j]])) {
                fail(r, &c, "columns");
                i = ROWS;
                break;
            }
    r->n_cases++;
    gpu_release(r->device, d_order);
    gpu_release(r->device, d_out);
    gpu_release(r->device, x.device);
    mem_free(x.host);
}

/* ---- the cases ---- */

static const enum dtype dtypes[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,  DTYPE_Q5_1,
    DTYPE_Q8_0, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,  DTYPE_IQ4_NL,
    DTYPE_INT2, DTYPE_INT3, DTYPE_INT4, DTYPE_INT8, DTYPE_FP8,  DTYPE_MXFP4,
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

static uint32_t some_k(enum dtype dtype, uint32_t k)
{
    uint32_t block = dtype_traits(dtype).block_elems;
    return (k + block - 1) / block * block;
}

static void run_small(struct rig *r)
{
    static const uint32_t n_rows[] = {1, 3, 9, 17, 33, 64};
    /* this loop runs every dtype with changing numbers of rows */
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        enum dtype t = dtypes[i];
        run_case(r, &(struct linear_case){t,
                                          some_k(t, 345),
                                          0,
                                          {33, 16, 5},
                                          n_rows[i % 6],
                                          3,
                                          5,
                                          1,
                                          AS_FEW,
                                          i % 2 == 0,
                                          true});
        run_case(
            r, &(struct linear_case){
                   t, some_k(t, 512), 0, {48}, n_rows[(i + 3) % 6], 8, 0, 0, AS_FEW, false, false});
        run_embed(r, t, 21, some_k(t, 77), 0);
    }
    static const uint32_t groups[] = {64, 128, 256, 640};
    for (uint32_t i = 0; i < 4; i++) {
        const enum dtype of[] = {DTYPE_INT4, DTYPE_INT8, DTYPE_FP8, DTYPE_INT3};
        run_case(r, &(struct linear_case){
                        of[i], 640, groups[i], {40}, n_rows[i], 0, 0, 0, AS_FEW, true, false});
        run_case(
            r,
            &(struct linear_case){
                DTYPE_INT4, 640, groups[i], {32, 8}, n_rows[i + 2], 0, 0, 0, AS_FEW, false, true});
    }
    run_case(r, &(struct linear_case){DTYPE_BF16, 2048, 0, {80}, 5, 0, 0, 0, AS_FEW, true, true});
    /* Four steps of these rows would leave only one KiB of shared memory free, which is too
     * little. */
    run_case(r, &(struct linear_case){DTYPE_BF16, 768, 0, {256}, 49, 0, 0, 0, AS_FEW, true, true});
    run_case(r, &(struct linear_case){DTYPE_INT4, 4096, 128, {31}, 2, 0, 0, 0, AS_FEW, true, true});
    run_case(
        r, &(struct linear_case){DTYPE_Q6_K, 512, 0, {160, 100}, 64, 0, 0, 0, AS_FEW, true, true});
    run_case(r, &(struct linear_case){DTYPE_INT4, 1536, 384, {70}, 3, 0, 0, 0, AS_FEW, true, true});
    run_case(r, &(struct linear_case){DTYPE_BF16, 40, 0, {24}, 70, 0, 0, 0, AS_FEW, false, false});
    run_case(r, &(struct linear_case){DTYPE_BF16, 8, 0, {300}, 2, 0, 0, 0, AS_FEW, false, false});
    run_case(r, &(struct linear_case){DTYPE_BF16, 16, 0, {1}, 1, 0, 0, 0, AS_FEW, false, false});
    for (uint32_t i = 0; i < N_DTYPES; i += 3)
        run_case(r, &(struct linear_case){dtypes[i],
                                          some_k(dtypes[i], 96),
                                          0,
                                          {40, 17},
                                          70,
                                          8,
                                          8,
                                          0,
                                          AS_MANY,
                                          i % 2 == 0,
                                          true});
    run_case(r,
             &(struct linear_case){DTYPE_BF16, 45, 0, {21, 30}, 66, 2, 3, 1, AS_MANY, false, true});
    run_case(r, &(struct linear_case){DTYPE_Q4_0, 64, 0, {40}, 67, 1, 0, 1, AS_MANY, true, false});
    run_columns(r);
}

static void run_all(struct rig *r)
{
    static const uint32_t n_rows[] = {1, 2, 7, 8, 15, 16, 24, 32, 48, 63, 64, 65, 70};
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        enum dtype t = dtypes[i];
        for (uint32_t j = 0; j < sizeof n_rows / sizeof n_rows[0]; j++) {
            run_case(r, &(struct linear_case){t,
                                              some_k(t, 1000 + j),
                                              0,
                                              {129, 64, 1},
                                              n_rows[j],
                                              j,
                                              j % 3,
                                              j % 2,
                                              AS_FEW,
                                              j % 2 == 1,
                                              j % 4 == 0});
            run_case(
                r, &(struct linear_case){
                       t, some_k(t, 4096), 0, {256, 40}, n_rows[j], 0, 0, 0, AS_FEW, true, false});
        }
        run_case(r, &(struct linear_case){
                        t, some_k(t, 1031), 0, {515, 40}, 300, 8, 0, 0, AS_MANY, false, true});
        run_embed(r, t, 200, some_k(t, 3000), 0);
    }
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    struct rig r = {.rng = {.state = 88172645463325252ull}};
    struct gpu_info info;
    struct error err = {0};
    if (gpu_open(&r.device, &r.stream, &info) != 0)
        return 77;
    /* the scratch is enough for splits */
    info.n_multiprocessors = info.n_multiprocessors < 8 ? 8 : info.n_multiprocessors;
    must(gpu_linear_new(r.stream, &info, &r.linear, &err), &err, "gpu_linear_new");
    must(gpu_alloc(r.device, SCRATCH_BYTES, &r.scratch, &err), &err, "gpu_alloc");
    run_small(&r);
    run_all_gated(&r);
    /* the cases run again with the smallest shared memory of supported devices */
    gpu_linear_free(r.linear);
    info.shared_bytes = 99 << 10; /* devices of capability 8.6 and 8.9 have this limit */
    must(gpu_linear_new(r.stream, &info, &r.linear, &err), &err, "gpu_linear_new");
    run_small(&r);
    run_all_gated(&r);
    if (!small)
        run_all(&r);
    gpu_linear_free(r.linear);
    gpu_release(r.device, r.scratch);
    gpu_close(r.device, r.stream);
    printf("%u cases, %u failures\n", r.n_cases, r.n_failures);
    return r.n_failures > 0;
}
