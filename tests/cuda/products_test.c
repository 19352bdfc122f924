/* Tests weights, products and embeddings by the table of operators. It compares the CUDA backend
 * with the CPU backend, with the same activations rounded to bfloat16. It covers the code around
 * the kernels of linear_test: packing in the loader's pieces, parts of several formats in one
 * call, inputs in another order, few rows and many, and the smallest possible scratch. The test
 * runs on a device and over the emulation. Exit status 0 passed, 1 failures, 77 no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/host/narrow.h"
#include "tests/cuda/rig/needs_device.h"

enum { CPU, CUDA, N_DEVICES, PIECE = 64 };

struct part {
    enum dtype dtype;
    uint32_t n, group;
    float bias; /* number around which the biases lie; 0 = no bias */
    bool to_float;
};
struct product_case {
    uint32_t k, n_rows;
    /* whether the inputs have an order array; some of them are then WEIGHT_NO_INPUT */
    bool in_order;
    struct part parts[LINEAR_MAX_PARTS];
};
static const struct product_case cases[] = {
    {512,
     5,
     false,
     {{DTYPE_Q4_K, 96, 0, 1, false}, {DTYPE_Q6_K, 32, 0, 0, false}, {DTYPE_Q4_K, 33, 0, 0, true}}},
    {320,
     70,
     false,
     {{DTYPE_BF16, 150, 0, 0, false},
      {DTYPE_INT4, 40, 64, 1, false},
      {DTYPE_INT4, 40, 0, 1, false}}},
    {384, 3, true, {{DTYPE_INT4, 130, 0, 1, false}, {DTYPE_INT4, 20, 0, 0, true}}},
    {384, 300, true, {{DTYPE_INT4, 70, 0, 1, false}}},
    {256, 300, false, {{DTYPE_F32, 24, 0, 0, true}, {DTYPE_MXFP4, 80, 0, 1, false}}},
    {33, 2, false, {{DTYPE_F16, 300, 0, 1, false}}},
    {256, 70, false, {{DTYPE_F32, 65, 0, 300.9f, false}}},
    {256, 70, false, {{DTYPE_F32, 65, 0, 300.9f, true}}},
    {64, 1, false, {{DTYPE_FP8, 1, 64, 0, true}}},
};
#define N_CASES (sizeof cases / sizeof cases[0])

/* `gated_case` has two parts, gate and up, and their activation. The result is at the place of
 * the first part. */
struct gated_case {
    enum activation act;
    struct product_case c;
};
static const struct gated_case gated_cases[] = {
    /* one launch: with one block and with several, K in splits and whole, turns of 64 rows. */
    {ACT_SILU, {512, 1, false, {{DTYPE_BF16, 33, 0, 0, false}, {DTYPE_BF16, 33, 0, 0, false}}}},
    {ACT_SILU, {1024, 1, false, {{DTYPE_BF16, 8, 0, 1, false}, {DTYPE_BF16, 8, 0, 0, false}}}},
    {ACT_SILU, {96, 12, false, {{DTYPE_BF16, 300, 0, 0, false}, {DTYPE_BF16, 300, 0, 1, false}}}},
    {ACT_GELU_TANH,
     {256, 40, false, {{DTYPE_Q4_K, 150, 0, 0, false}, {DTYPE_Q4_K, 150, 0, 0, false}}}},
    {ACT_SWIGLU_LIMITED,
     {256, 100, false, {{DTYPE_INT4, 40, 128, 1, false}, {DTYPE_INT4, 40, 128, 1, false}}}},
    {ACT_SILU, {512, 5, false, {{DTYPE_FP8, 64, 128, 0, false}, {DTYPE_FP8, 64, 128, 0, false}}}},
    /* two launches: different formats, inputs in an order, cuBLASLt. */
    {ACT_SILU, {512, 3, false, {{DTYPE_Q4_K, 32, 0, 0, false}, {DTYPE_Q6_K, 32, 0, 0, false}}}},
    {ACT_SILU, {384, 3, true, {{DTYPE_INT4, 20, 0, 0, false}, {DTYPE_INT4, 20, 0, 0, false}}}},
    {ACT_SILU, {256, 70, false, {{DTYPE_BF16, 40, 0, 1, false}, {DTYPE_BF16, 40, 0, 1, false}}}},
};
#define N_GATED (sizeof gated_cases / sizeof gated_cases[0])

static unsigned n_failures;
static uint64_t random_state = 88172645463325252ull;

static void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "products_test: %s: %s: %s\n", what, status_name(s), err->text);
    exit(1);
}
static uint64_t next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
static float uniform(void)
{
    return (float)(next() >> 40) * 0x1p-23f - 1.0f;
}
static float rounded(float v)
{
    return narrow_float((uint32_t)bf16_from_f32(v) << 16);
}

/* Makes rows in the file's layout. A block's scale is a small half in its first bytes, or a
 * float. */
static uint8_t *rows_new(const struct part *p, uint32_t k, uint64_t *row_bytes)
{
    struct dtype_traits t = dtype_traits(p->dtype);
    *row_bytes = (uint64_t)k / t.block_elems * t.block_bytes;
    uint8_t *rows = mem_array(p->n, *row_bytes);
    for (uint64_t i = 0; i < p->n * *row_bytes; i += 2) {
        uint16_t half = (uint16_t)((next() & 0x83ff) | 0x2000);
        memcpy(rows + i, &half, i + 1 < p->n * *row_bytes ? 2 : 1);
    }
    for (uint64_t i = 0; i < p->n * *row_bytes; i += t.block_bytes) {
        bool first =
            p->group == 0 || i % *row_bytes / t.block_bytes * t.block_elems % p->group == 0;
        float single = uniform() * 0.05f;
        if (p->dtype == DTYPE_F32)
            single = rounded(uniform()); /* the number is the same on both devices */
        if (p->dtype == DTYPE_FP8 || p->dtype == DTYPE_F32)
            memcpy(rows + i, &single, sizeof single);
        if (p->dtype == DTYPE_MXFP4)
            rows[i] = (uint8_t)(115 + next() % 10);
        if (p->dtype == DTYPE_INT4)
            rows[i + 2] %= 17;
        if (p->dtype == DTYPE_F16)
            rows[i] &= 0xf8; /* eight bits of fraction remain, which are exact in bfloat16 too */
        if (!first)
            memcpy(rows + i, rows + i - t.block_bytes, 4);
    }
    return rows;
}

static struct weight weight_new(struct device *d, const struct part *p, uint32_t k,
                                const uint32_t *order, const uint8_t *rows, uint64_t row_bytes)
{
    struct weight w = {.dtype = p->dtype, .n = p->n, .k = k, .group = p->group, .order = order};
    w.n_bytes = d->ops->loading.weight_bytes(d, p->dtype, p->n, k, p->group);
    w.data = w.n_bytes > 0 ? d->ops->memory.alloc(d, w.n_bytes) : NULL;
    if (!w.data) {
        fprintf(stderr, "products_test: no room for %s\n", dtype_traits(p->dtype).name);
        exit(1);
    }
    for (uint32_t first = 0; first < p->n; first += PIECE) {
        struct weight piece = w;
        piece.n = p->n - first < PIECE ? p->n - first : PIECE;
        piece.data =
            (uint8_t *)w.data + d->ops->loading.weight_bytes(d, p->dtype, first, k, p->group);
        d->ops->loading.weight_pack(d, &piece,
                                    &(struct weight_rows){rows + first * row_bytes, row_bytes});
    }
    return w;
}

/* Uploads n floats as the device's activations. */
static void *upload(struct device *d, const float *from, size_t n)
{
    uint32_t bytes = d->ops->activation_bytes;
    uint8_t *host = mem_array(n + 1, bytes);
    void *to = d->ops->memory.alloc(d, (n + 1) * bytes);
    for (size_t i = 0; i < n; i++) {
        uint16_t half = bf16_from_f32(from[i]);
        memcpy(host + i * bytes, bytes == 4 ? (const void *)&from[i] : &half, bytes);
    }
    d->ops->memory.write(d, to, host, n * bytes);
    mem_free(host);
    return to;
}
static void *upload_bytes(struct device *d, const void *from, size_t n)
{
    void *to = d->ops->memory.alloc(d, n + 1);
    d->ops->memory.write(d, to, from, n);
    return to;
}
static void download(struct device *d, const void *from, bool is_float, size_t n, float *out)
{
    uint32_t bytes = is_float ? 4 : d->ops->activation_bytes;
    uint8_t *host = mem_array(n, bytes);
    struct error err;
    must(d->ops->memory.read(d, host, from, n * bytes, &err), &err, "read");
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, host + i * bytes, sizeof half);
        out[i] = narrow_float((uint32_t)half << 16);
        if (bytes == 4)
            memcpy(&out[i], host + i * bytes, 4);
    }
    mem_free(host);
}

/* `inputs` holds the inputs of both devices. */
struct inputs {
    uint8_t *rows[LINEAR_MAX_PARTS];
    float *x;
    uint32_t x_width, order[1024];
};

/* Runs the operator and returns the results of all parts, side by side in rows of `width`
 * floats. */
static void run(struct device *d, const struct product_case *c, const enum activation *act,
                const struct inputs *in, float *out, uint32_t width)
{
    uint32_t x_width = in->x_width;
    struct weight w[LINEAR_MAX_PARTS];
    float bias[512];
    void *d_out[LINEAR_MAX_PARTS], *d_bias[LINEAR_MAX_PARTS] = {0}, *d_order = NULL;
    void *d_x = upload(d, in->x, (size_t)c->n_rows * x_width);
    struct linear_params p = {.x = {d_x, x_width}, .n_rows = c->n_rows};
    uint64_t most = 0, row_bytes = 0;
    struct error err;
    if (c->in_order)
        d_order = upload_bytes(d, in->order, c->k * sizeof *in->order);
    for (uint32_t i = 0; i < LINEAR_MAX_PARTS && c->parts[i].n > 0; i++, p.n_parts++) {
        const struct part *part = &c->parts[i];
        size_t n = (size_t)c->n_rows * part->n;
        (void)dtype_bytes(part->dtype, c->k, 1, &row_bytes);
        w[i] = weight_new(d, part, c->k, d_order, in->rows[i], row_bytes);
        most = (uint64_t)part->n * c->k > most ? (uint64_t)part->n * c->k : most;
        d_out[i] = d->ops->memory.alloc(d, n * sizeof(float));
        for (uint32_t j = 0; j < 512; j++)
            bias[j] = (float)(j % 7) - 3 + part->bias;
        d_bias[i] = part->bias != 0 ? upload_bytes(d, bias, part->n * sizeof(float)) : NULL;
        p.parts[i] = (struct linear_part){
            .w = &w[i], .bias = d_bias[i], .out = {d_out[i], part->n}, .to_float = part->to_float};
    }
    struct scratch_shape shape = {.n_rows = c->n_rows, .most_weight_elements = most};
    uint64_t n_scratch = d->ops->memory.scratch_bytes ? d->ops->memory.scratch_bytes(d, &shape) : 0;
    void *scratch = n_scratch > 0 ? d->ops->memory.alloc(d, n_scratch) : NULL;
    if (n_scratch > 0)
        d->ops->memory.use_scratch(d, scratch, n_scratch);
    const struct gated_params g = {.gate = p.parts[0].out,
                                   .up = p.parts[1].out,
                                   .out = p.parts[0].out,
                                   .n_rows = c->n_rows,
                                   .dim = c->parts[0].n,
                                   .act = act ? *act : ACT_SILU,
                                   .limit = 0.7f};
    if (act && d->ops->math.linear_gated) {
        d->ops->math.linear_gated(d, &p, &g);
    } else {
        d->ops->math.linear(d, &p);
        if (act)
            d->ops->math.gated(d, &g);
    }
    must(d->ops->pass.sync(d, &err), &err, "sync");
    for (uint32_t i = 0, at = 0; i < p.n_parts; at += c->parts[i++].n) {
        uint32_t n = c->parts[i].n;
        float *results = mem_array((size_t)c->n_rows * n, sizeof *results);
        download(d, d_out[i], c->parts[i].to_float, (size_t)c->n_rows * n, results);
        for (uint32_t r = 0; r < c->n_rows; r++)
            memcpy(out + (size_t)r * width + at, results + (size_t)r * n, n * sizeof *out);
        mem_free(results);
        d->ops->memory.release(d, d_out[i], (uint64_t)c->n_rows * n * sizeof(float));
        d->ops->memory.release(d, w[i].data, w[i].n_bytes);
        if (d_bias[i])
            d->ops->memory.release(d, d_bias[i], n * sizeof(float) + 1);
    }
    if (scratch)
        d->ops->memory.release(d, scratch, n_scratch);
    if (d_order)
        d->ops->memory.release(d, d_order, c->k * sizeof *in->order + 1);
    d->ops->memory.release(d, d_x, ((size_t)c->n_rows * x_width + 1) * d->ops->activation_bytes);
}

/* Checks a case. act is NULL for a product without an activation. */
static void check_case(struct device *const *devices, const struct product_case *c,
                       const enum activation *act, size_t i_case)
{
    struct inputs in = {.x_width = c->in_order ? c->k - 40 : c->k};
    uint32_t width = 0;
    uint64_t row_bytes;
    for (uint32_t i = 0; i < LINEAR_MAX_PARTS && c->parts[i].n > 0; i++) {
        in.rows[i] = rows_new(&c->parts[i], c->k, &row_bytes);
        width += c->parts[i].n;
    }
    for (uint32_t i = 0; i < c->k; i++) /* 40 inputs are WEIGHT_NO_INPUT */
        in.order[i] = i % 9 == 0 && i / 9 < 40 ? WEIGHT_NO_INPUT : (i * 7) % in.x_width;
    float *out[N_DEVICES];
    in.x = mem_array((size_t)c->n_rows * in.x_width, sizeof *in.x);
    for (size_t i = 0; i < (size_t)c->n_rows * in.x_width; i++)
        in.x[i] = rounded(uniform());
    for (int d = 0; d < N_DEVICES; d++) {
        out[d] = mem_array((size_t)c->n_rows * width, sizeof *out[d]);
        run(devices[d], c, act, &in, out[d], width);
    }
    /* `off`, `size` and `shift` are sums over the whole result, so that a wrong row, part or
     * order is detected. */
    double off = 0, size = 0, shift = 0;
    for (size_t i = 0; i < (size_t)c->n_rows * width; i++) {
        if (act && i % width >= c->parts[0].n)
            continue; /* this part is up, which need not be written */
        double want = (double)out[CPU][i], diff = (double)out[CUDA][i] - want;
        off += diff * diff;
        shift += diff;
        size += want * want;
    }
    /* Results are rounded by at most 2^-9 of themselves. With many rows the weights are rounded
     * too. With two launches the numbers between the launches are rounded too. */
    if (!(sqrt(off) <= (act ? 0x1p-7 : 0x1p-8) * sqrt(size)) || !(size > 0)) {
        printf("FAILED: case %zu: off by %.3g of %.3g\n", i_case, sqrt(off), sqrt(size));
        n_failures++;
    }
    /* Results must be rounded up as often as down, even around a bias that loses a bit. */
    shift /= (double)c->n_rows * width;
    if (c->parts[0].bias > 1 && !act && fabs(shift) > 0.1) {
        printf("FAILED: case %zu: off by %.3g in the mean\n", i_case, shift);
        n_failures++;
    }
    for (uint32_t i = 0; i < LINEAR_MAX_PARTS; i++)
        mem_free(in.rows[i]);
    for (int d = 0; d < N_DEVICES; d++)
        mem_free(out[d]);
    mem_free(in.x);
}

/* A row of 33 inputs is not a whole number of blocks, so no kernel supports such a matrix. For
 * every operator that uses the matrix, sync must return an error. The operator must not skip the
 * result silently. */
static bool refuses(void (*fn)(struct device *d, struct weight *w), const char *what)
{
    struct device *d;
    struct error err = {0};
    struct weight w = {.dtype = DTYPE_Q8_0, .n = 16, .k = 33};
    must(cuda_device_open(&(struct cuda_device_options){.utilization = 0.1,
                                                        .staging_bytes = 1 << 20,
                                                        .n_threads = 1},
                          &d, &err),
         &err, "cuda_device_open");
    fn(d, &w);
    const bool refused = d->ops->pass.sync(d, &err) == STATUS_UNSUPPORTED && strstr(err.text, "33");
    printf("%s of a matrix that no kernel takes: %s\n", what, refused ? "refused" : "FAILED");
    d->ops->close(d);
    return refused;
}

static void multiply(struct device *d, struct weight *w)
{
    d->ops->math.linear(d, &(struct linear_params){.n_rows = 1, .n_parts = 1, .parts = {{.w = w}}});
}

static void look_up(struct device *d, struct weight *w)
{
    d->ops->math.embed(d, &(struct embed_params){.w = w, .n_rows = 1});
}

static void pack(struct device *d, struct weight *w)
{
    d->ops->loading.weight_pack(d, w, &(struct weight_rows){0});
}

/* The matrix fills five of the host's packing buffers, the first buffer twice, and a part of one
 * more. Rows at the edges of all buffers must be packed correctly, so each row has different
 * numbers. */
static float big_value(uint32_t row, uint32_t column)
{
    return (float)((row * 31 + column * 7 + row / 16) % 251); /* the value is exact in bfloat16 */
}
static void check_rooms(struct device *d)
{
    enum { K = 8224, ROOM_ROWS = (32 << 20) / (K * 32) * 16, N = 5 * ROOM_ROWS + 36, N_IDS = 24 };
    struct weight w = {.dtype = DTYPE_BF16, .n = N, .k = K};
    uint16_t *rows = mem_array((size_t)N * K, sizeof *rows);
    for (uint32_t r = 0; r < N; r++)
        for (uint32_t k = 0; k < K; k++)
            rows[(size_t)r * K + k] = bf16_from_f32(big_value(r, k));
    w.n_bytes = d->ops->loading.weight_bytes(d, w.dtype, N, K, 0);
    w.data = d->ops->memory.alloc(d, w.n_bytes);
    if (!w.data)
        must(STATUS_NO_MEMORY, &(struct error){.text = "a matrix of 160 MiB"}, "check_rooms");
    d->ops->loading.weight_pack(d, &w,
                                &(struct weight_rows){(const uint8_t *)rows, K * sizeof *rows});
    mem_free(rows);
    uint32_t ids[N_IDS];
    for (uint32_t i = 0; i < N_IDS; i++) {
        static const uint32_t at[] = {0, 17, ROOM_ROWS / 2 + 3, ROOM_ROWS - 1};
        const uint32_t row = i / 4 * ROOM_ROWS + at[i % 4];
        ids[i] = row < N ? row : N - 1;
    }
    const uint32_t *d_ids = upload_bytes(d, ids, sizeof ids);
    void *out = d->ops->memory.alloc(d, (size_t)N_IDS * K * sizeof(uint16_t));
    d->ops->math.embed(d, &(struct embed_params){
                              .w = &w, .ids = d_ids, .out = {out, K}, .n_rows = N_IDS, .scale = 1});
    float *got = mem_array((size_t)N_IDS * K, sizeof *got);
    download(d, out, false, (size_t)N_IDS * K, got);
    for (uint32_t i = 0; i < N_IDS; i++)
        for (uint32_t k = 0; k < K; k++)
            if (got[(size_t)i * K + k] != big_value(ids[i], k)) {
                printf("FAILED: row %u of a matrix of many rooms has %g at %u, wanted is %g\n",
                       ids[i], (double)got[(size_t)i * K + k], k, (double)big_value(ids[i], k));
                n_failures++;
                break;
            }
    mem_free(got);
    d->ops->memory.release(d, out, (size_t)N_IDS * K * sizeof(uint16_t));
    d->ops->memory.release(d, w.data, w.n_bytes);
}

int main(void)
{
    struct device *devices[N_DEVICES];
    struct error err = {0};
    needs_device();
    must(cuda_device_open(&(struct cuda_device_options){.utilization = 0.5, .n_threads = 2},
                          &devices[CUDA], &err),
         &err, "cuda_device_open");
    must(cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = -1},
                         &devices[CPU], &err),
         &err, "cpu_device_open");
    for (size_t i = 0; i < N_CASES; i++)
        check_case(devices, &cases[i], NULL, i);
    for (size_t i = 0; i < N_GATED; i++)
        check_case(devices, &gated_cases[i].c, &gated_cases[i].act, N_CASES + i);
    check_rooms(devices[CUDA]);
    for (int d = 0; d < N_DEVICES; d++)
        devices[d]->ops->close(devices[d]);
    n_failures +=
        !refuses(multiply, "a product") + !refuses(look_up, "rows") + !refuses(pack, "the packing");
    printf("%zu cases, %u failures\n", N_CASES + N_GATED, n_failures);
    return n_failures > 0;
}
