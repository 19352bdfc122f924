/* Tests struct ops over CUDA, except products, attention and mixtures. Every operator on rows
 * must agree with the CPU backend for the same bfloat16 numbers, and must not write outside of
 * its rows. Uploads, recordings and memory must behave as kernels/ops.h specifies. The test runs
 * on a device and over the emulation.
 *   elementwise_test           all shapes; exit status 0 passed, 1 failures, 77 no device
 *   elementwise_test --small   the shapes that the emulation runs in a second */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/cuda/rig/needs_device.h"

#define STAGING_BYTES (4u << 20)
#define EPS           1e-6f

struct shape {
    /* in elements: pad is between rows, offset before the first row */
    uint32_t n_rows, dim, pad, offset;
};
static const struct shape small_shapes[] = {
    {1, 1, 0, 0},   {3, 7, 1, 1},   {2, 8, 0, 0},    {5, 64, 8, 0},   {4, 129, 7, 0},
    {3, 130, 6, 1}, {2, 256, 0, 4}, {2, 2880, 0, 0}, {1, 5000, 3, 0},
};
static const struct shape large_shapes[] = {
    {64, 4096, 0, 0},
    {70000, 16, 0, 0},
    {33, 14336, 8, 0},
    {257, 8193, 7, 1},
};

struct rig {
    struct device *cpu, *gpu;
    uint64_t random;
    unsigned n_failures, n_cases;
};

static void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "elementwise_test: %s: %s: %s\n", what, status_name(s), err->text);
    exit(1);
}

static void expect(struct rig *r, bool ok, const char *what)
{
    r->n_cases++;
    if (ok)
        return;
    r->n_failures++;
    printf("FAILED: %s\n", what);
}

static float bf16_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

static uint16_t bf16_round(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float next_float(struct rig *r, float scale)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    uint32_t bits = (uint32_t)(r->random * 0x2545f4914f6cdd1dull >> 40);
    return ((float)bits * 0x1p-23f - 1.0f) * scale;
}

/* ---- the same rows on both devices ---- */

struct rows {
    struct shape s;
    uint64_t n;
    bool is_float; /* the rows hold floats on the GPU too */
    float *host;
    void *device;
    float *before; /* content of the memory before the operator */
};

static uint32_t stride_of(const struct shape *s)
{
    return s->dim + s->pad;
}

static uint64_t bytes_of(const struct rows *x)
{
    return x->n * (x->is_float ? sizeof(float) : sizeof(uint16_t));
}

static void to_device(struct rig *r, const struct rows *x)
{
    uint16_t *narrow = mem_array(x->n, sizeof *narrow);
    for (uint64_t i = 0; i < x->n; i++)
        narrow[i] = bf16_round(x->host[i]);
    r->gpu->ops->memory.write(r->gpu, x->device, x->is_float ? (const void *)x->host : narrow,
                              bytes_of(x));
    mem_free(narrow);
}

static struct rows make(struct rig *r, struct shape s, float scale, bool is_float)
{
    struct rows x = {.s = s, .n = s.offset + (uint64_t)s.n_rows * stride_of(&s)};
    x.is_float = is_float;
    x.host = mem_array(x.n, sizeof *x.host);
    x.before = mem_array(x.n, sizeof *x.before);
    x.device = r->gpu->ops->memory.alloc(r->gpu, bytes_of(&x));
    for (uint64_t i = 0; i < x.n; i++)
        x.host[i] = bf16_value(bf16_round(next_float(r, scale)));
    memcpy(x.before, x.host, x.n * sizeof *x.host);
    to_device(r, &x);
    return x;
}

static void drop(struct rig *r, struct rows *x)
{
    r->gpu->ops->memory.release(r->gpu, x->device, bytes_of(x));
    mem_free(x->host);
    mem_free(x->before);
}

static struct view of_cpu(const struct rows *x)
{
    return (struct view){x->host + x->s.offset, stride_of(&x->s)};
}
static struct view of_gpu(const struct rows *x)
{
    size_t element = x->is_float ? sizeof(float) : sizeof(uint16_t);
    return (struct view){(uint8_t *)x->device + x->s.offset * element, stride_of(&x->s)};
}

/* Compares the GPU's rows with the CPU's. Elements may differ by half a unit of bfloat16's last
 * place of the CPU's result, plus `slack` for functions and sums. Memory outside of the first
 * dim elements of the rows must be unchanged. */
static void compare(struct rig *r, const struct rows *x, uint32_t dim, float slack,
                    const char *what)
{
    struct error err;
    uint8_t *raw = mem_array(bytes_of(x), 1);
    uint64_t n_bad = 0, first = 0;
    must(r->gpu->ops->memory.read(r->gpu, raw, x->device, bytes_of(x), &err), &err, what);
    for (uint64_t i = 0; i < x->n; i++) {
        uint16_t narrow;
        float got;
        memcpy(&got, raw + i * sizeof got * x->is_float, sizeof got * x->is_float);
        if (!x->is_float) {
            memcpy(&narrow, raw + i * sizeof narrow, sizeof narrow);
            got = bf16_value(narrow);
        }
        bool inside = i >= x->s.offset && (i - x->s.offset) % stride_of(&x->s) < dim;
        float want = inside ? x->host[i] : x->before[i];
        float allowed = fabsf(want) * (x->is_float ? 0 : 0x1p-8f) + slack * fmaxf(fabsf(want), 1);
        if (!(inside ? fabsf(got - want) <= allowed : got == want) && n_bad++ == 0)
            first = i;
    }
    r->n_cases++;
    if (n_bad > 0) {
        r->n_failures++;
        printf("FAILED: %s, %u rows of %u, pad %u, offset %u: %llu elements, the first %llu: want "
               "%g\n",
               what, x->s.n_rows, x->s.dim, x->s.pad, x->s.offset, (unsigned long long)n_bad,
               (unsigned long long)first, (double)x->host[first]);
    }
    mem_free(raw);
}

/* Uploads a host list for a pass of the GPU. */
static const void *up(struct rig *r, const void *host, uint64_t n_bytes)
{
    r->gpu->ops->pass.begin(r->gpu);
    return r->gpu->ops->pass.upload(r->gpu, host, n_bytes);
}

/* ---- operators ---- */

static void test_add_gated_clear(struct rig *r, struct shape s)
{
    static const char *const names[] = {"silu", "gelu", "limited"};
    struct rows x = make(r, s, 2, false), y = make(r, s, 3, false);
    r->cpu->ops->math.add(r->cpu, &(struct add_params){of_cpu(&x), of_cpu(&y), s.n_rows, s.dim});
    r->gpu->ops->math.add(r->gpu, &(struct add_params){of_gpu(&x), of_gpu(&y), s.n_rows, s.dim});
    compare(r, &x, s.dim, 0, "add");
    for (enum activation act = 0; act < ACT_COUNT; act++) {
        struct rows out = make(r, s, 1, false), gate = make(r, s, 6, false);
        r->cpu->ops->math.gated(r->cpu,
                                &(struct gated_params){of_cpu(&gate), of_cpu(&y), of_cpu(&out),
                                                       s.n_rows, s.dim, act, 2.5f});
        r->gpu->ops->math.gated(r->gpu,
                                &(struct gated_params){of_gpu(&gate), of_gpu(&y), of_gpu(&out),
                                                       s.n_rows, s.dim, act, 2.5f});
        compare(r, &out, s.dim, 2e-5f, names[act]);
        drop(r, &out);
        drop(r, &gate);
    }
    r->cpu->ops->math.clear(r->cpu, of_cpu(&y), s.n_rows, s.dim);
    r->gpu->ops->math.clear(r->gpu, of_gpu(&y), s.n_rows, s.dim);
    compare(r, &y, s.dim, 0, "clear");
    drop(r, &x);
    drop(r, &y);
}

static void test_gather(struct rig *r, struct shape s)
{
    struct rows x = make(r, s, 1, false), out = make(r, s, 1, false);
    uint32_t *list = mem_array(s.n_rows, sizeof *list);
    for (uint32_t i = 0; i < s.n_rows; i++)
        list[i] = (i * 7 + 3) % s.n_rows;
    r->cpu->ops->math.gather(r->cpu, of_cpu(&out), of_cpu(&x), list, s.n_rows, s.dim);
    r->gpu->ops->math.gather(r->gpu, of_gpu(&out), of_gpu(&x), up(r, list, s.n_rows * sizeof *list),
                             s.n_rows, s.dim);
    compare(r, &out, s.dim, 0, "gather");
    mem_free(list);
    drop(r, &x);
    drop(r, &out);
}

static void test_gate_rows(struct rig *r, struct shape s)
{
    const struct shape one = {s.n_rows, 1, 2, 1};
    struct rows x = make(r, s, 1, false), gate = make(r, one, 4, false);
    r->cpu->ops->math.gate_rows(r->cpu, of_cpu(&x), s.n_rows, s.dim, of_cpu(&gate));
    r->gpu->ops->math.gate_rows(r->gpu, of_gpu(&x), s.n_rows, s.dim, of_gpu(&gate));
    compare(r, &x, s.dim, 1e-5f, "gate_rows");
    drop(r, &x);
    drop(r, &gate);
}

/* Makes a vector of dim floats on both devices. */
static float *put_floats(struct rig *r, uint32_t n, float base, float scale, void **device)
{
    float *host = mem_array(n, sizeof *host);
    for (uint32_t i = 0; i < n; i++)
        host[i] = base + next_float(r, scale);
    *device = r->gpu->ops->memory.alloc(r->gpu, n * sizeof *host);
    r->gpu->ops->memory.write(r->gpu, *device, host, n * sizeof *host);
    return host;
}

static void test_norm_of_sums(struct rig *r, struct shape s)
{
    struct rows x = make(r, s, 1, false);
    void *d_w, *d_sums;
    float *w = put_floats(r, s.dim, 1, 0.5f, &d_w), *sums, *got;
    struct error err;
    sums = put_floats(r, s.n_rows, 0, 0, &d_sums);
    got = mem_array(s.n_rows, sizeof *got);
    r->cpu->ops->math.sum_squares(r->cpu, of_cpu(&x), s.n_rows, s.dim, sums);
    r->gpu->ops->math.sum_squares(r->gpu, of_gpu(&x), s.n_rows, s.dim, d_sums);
    must(r->gpu->ops->memory.read(r->gpu, got, d_sums, s.n_rows * sizeof *got, &err), &err, "sums");
    /* The same squares are added in two orders. Each sum is off by at most 2^-24 for each
     * addition in its longest chain; each of a CPU's 16 lanes has dim / 16 additions. The usual
     * error grows with the root of their number: 2e-6 for the widest row here. */
    bool same = true;
    for (uint32_t i = 0; i < s.n_rows; i++)
        same = same && fabsf(got[i] - sums[i]) <= 1e-5f * sums[i];
    expect(r, same, "sum_squares");
    struct norm_params p = {.out = of_cpu(&x),
                            .x = of_cpu(&x),
                            .w = w,
                            .n_rows = s.n_rows,
                            .n_parts = 1,
                            .dim = s.dim,
                            .eps = EPS,
                            .sums = sums,
                            .whole = 2 * s.dim};
    r->cpu->ops->math.norm(r->cpu, &p);
    p.out = p.x = of_gpu(&x);
    p.w = d_w;
    p.sums = d_sums;
    r->gpu->ops->math.norm(r->gpu, &p);
    compare(r, &x, s.dim, 1e-5f, "norm of sums");
    r->gpu->ops->memory.release(r->gpu, d_w, s.dim * sizeof *w);
    r->gpu->ops->memory.release(r->gpu, d_sums, s.n_rows * sizeof *sums);
    mem_free(w);
    mem_free(sums);
    mem_free(got);
    drop(r, &x);
}

static void test_add_norm(struct rig *r, struct shape s)
{
    struct rows x = make(r, s, 1, false), y = make(r, s, 1, false), out = make(r, s, 1, false);
    void *d_w;
    float *w = put_floats(r, s.dim, 1, 0.5f, &d_w);
    struct norm_params p = {
        .w = w, .n_rows = s.n_rows, .n_parts = 1, .dim = s.dim, .eps = EPS, .x = of_cpu(&x)};
    r->cpu->ops->math.add(r->cpu, &(struct add_params){of_cpu(&x), of_cpu(&y), s.n_rows, s.dim});
    for (uint64_t i = 0; i < x.n; i++) /* the numbers are as in the GPU's residual stream */
        x.host[i] = bf16_value(bf16_round(x.host[i]));
    p.out = of_cpu(&out);
    r->cpu->ops->math.norm(r->cpu, &p);
    p.w = d_w;
    p.x = of_gpu(&x);
    p.out = of_gpu(&out);
    r->gpu->ops->math.add_norm(r->gpu,
                               &(struct add_params){of_gpu(&x), of_gpu(&y), s.n_rows, s.dim}, &p);
    compare(r, &x, s.dim, 0, "add_norm: sum");
    compare(r, &out, s.dim, 1e-5f, "add_norm: norm");
    r->gpu->ops->memory.release(r->gpu, d_w, s.dim * sizeof *w);
    mem_free(w);
    drop(r, &x);
    drop(r, &y);
    drop(r, &out);
}

struct rope_case {
    uint32_t n_rows, n_heads, head_dim, n_rot, first, pad, offset;
    bool interleaved;
};
static const struct rope_case rope_cases[] = {
    {3, 2, 64, 64, 0, 0, 0, false},   {2, 3, 128, 32, 0, 0, 0, true},
    {1, 1, 18, 6, 4, 1, 0, true},     {4, 2, 20, 20, 0, 3, 1, false},
    {2, 5, 192, 64, 128, 0, 0, true}, {2, 2, 80, 40, 0, 8, 0, false},
    {5, 1, 576, 64, 512, 0, 0, true}};

static void test_rope(struct rig *r, const struct rope_case *c)
{
    const struct shape s = {c->n_rows, c->n_heads * c->head_dim, c->pad, c->offset};
    const struct shape table = {c->n_rows, c->n_rot, 0, 0};
    struct rows x = make(r, s, 1, false), angles = make(r, table, 1, true);
    uint32_t positions[8];
    void *d_freqs;
    float *freqs = put_floats(r, c->n_rot / 2, 0.6f, 0.5f, &d_freqs);
    for (uint32_t i = 0; i < c->n_rows; i++)
        positions[i] = i * 1001;
    struct rope_table_params t = {positions, c->n_rows, c->n_rot / 2, freqs, 1.2f, angles.host};
    r->cpu->ops->math.rope_table(r->cpu, &t);
    t.positions = up(r, positions, c->n_rows * sizeof *positions);
    t.inv_freqs = d_freqs;
    t.out = angles.device;
    r->gpu->ops->math.rope_table(r->gpu, &t);
    struct error err;
    float *got = mem_array(angles.n, sizeof *got);
    must(r->gpu->ops->memory.read(r->gpu, got, angles.device, bytes_of(&angles), &err), &err,
         "angles");
    bool same = true;
    for (uint64_t i = 0; i < angles.n; i++)
        same = same && fabsf(got[i] - angles.host[i]) <= 1e-6f;
    expect(r, same, "rope_table");
    struct rope_params p = {.x = of_cpu(&x),
                            .n_rows = c->n_rows,
                            .n_heads = c->n_heads,
                            .head_dim = c->head_dim,
                            .n_rot = c->n_rot,
                            .interleaved = c->interleaved,
                            .cos_sin = got};
    p.x.data = (float *)p.x.data + c->first;
    r->cpu->ops->math.rope(r->cpu, &p);
    p.x = of_gpu(&x);
    p.x.data = (uint16_t *)p.x.data + c->first;
    p.cos_sin = angles.device;
    r->gpu->ops->math.rope(r->gpu, &p);
    compare(r, &x, s.dim, 1e-6f, "rope");
    r->gpu->ops->memory.release(r->gpu, d_freqs, c->n_rot / 2 * sizeof *freqs);
    mem_free(freqs);
    mem_free(got);
    drop(r, &x);
    drop(r, &angles);
}

static void test_copy_heads(struct rig *r, const struct rope_case *c)
{
    const struct shape s = {c->n_rows, c->n_heads * c->head_dim, c->pad, c->offset};
    struct rows x = make(r, s, 1, false), to = make(r, s, 1, false);
    struct copy_heads_params p = {of_cpu(&x),  of_cpu(&to), c->n_rows, c->n_heads,
                                  c->head_dim, c->head_dim, c->n_rot};
    p.from.data = (float *)p.from.data + c->first;
    r->cpu->ops->math.copy_heads(r->cpu, &p);
    p.from = of_gpu(&x);
    p.from.data = (uint16_t *)p.from.data + c->first;
    p.to = of_gpu(&to);
    r->gpu->ops->math.copy_heads(r->gpu, &p);
    compare(r, &to, s.dim, 0, "copy_heads");
    drop(r, &x);
    drop(r, &to);
}

/* ---- logits ---- */

static void spoil(struct rig *r, struct rows *x)
{
    float *row = of_cpu(x).data;
    uint32_t dim = x->s.dim;
    row[dim / 2] = 9; /* two elements tie for the best */
    row[dim - 1] = 9;
    if (x->s.n_rows > 1)
        row[stride_of(&x->s) + dim / 3] = NAN;
    for (uint32_t i = 0; x->s.n_rows > 2 && i < dim; i++)
        row[2 * stride_of(&x->s) + i] = i % 2 ? NAN : -INFINITY;
    memcpy(x->before, x->host, x->n * sizeof *x->host);
    to_device(r, x);
}

static void test_logits(struct rig *r, struct shape s)
{
    struct rows x = make(r, s, 8, true);
    struct logits_top want[64], got[64];
    double sums[64], got_sums[64];
    float shift[64];
    struct error err;
    if (s.n_rows > 64)
        s.n_rows = 64;
    r->cpu->ops->math.softcap(r->cpu, of_cpu(&x), s.n_rows, s.dim, 5);
    r->gpu->ops->math.softcap(r->gpu, of_gpu(&x), s.n_rows, s.dim, 5);
    if (x.s.n_rows == s.n_rows)
        compare(r, &x, s.dim, 2e-6f, "softcap");
    spoil(r, &x);
    void *d_top = r->gpu->ops->memory.alloc(r->gpu, sizeof got);
    void *d_sums = r->gpu->ops->memory.alloc(r->gpu, sizeof sums);
    r->cpu->ops->math.logits_top(r->cpu, of_cpu(&x), s.n_rows, s.dim, want);
    r->gpu->ops->math.logits_top(r->gpu, of_gpu(&x), s.n_rows, s.dim, d_top);
    must(r->gpu->ops->memory.read(r->gpu, got, d_top, s.n_rows * sizeof *got, &err), &err, "top");
    for (uint32_t i = 0; i < s.n_rows; i++) {
        expect(r, memcmp(&got[i], &want[i], sizeof *got) == 0, "logits_top");
        shift[i] = want[i].best > -1e30f ? want[i].best : 0;
    }
    r->cpu->ops->math.sum_exp(r->cpu, of_cpu(&x), s.n_rows, s.dim, shift, sums);
    r->gpu->ops->math.sum_exp(r->gpu, of_gpu(&x), s.n_rows, s.dim,
                              up(r, shift, s.n_rows * sizeof *shift), d_sums);
    must(r->gpu->ops->memory.read(r->gpu, got_sums, d_sums, s.n_rows * sizeof *sums, &err), &err,
         "sums");
    for (uint32_t i = 0; i < s.n_rows; i++)
        expect(r,
               isnan(sums[i]) ? isnan(got_sums[i]) : fabs(got_sums[i] - sums[i]) <= 1e-5 * sums[i],
               "sum_exp");
    r->gpu->ops->memory.release(r->gpu, d_top, sizeof got);
    r->gpu->ops->memory.release(r->gpu, d_sums, sizeof sums);
    drop(r, &x);
}

/* ---- passes ---- */

static void test_uploads(struct rig *r)
{
    enum { ROWS = 5, TOKENS = 16 };
    static const uint32_t first[] = {11, 12, 13}, second[] = {21, 22, 23, 24, 25};
    const struct kv_row rows[ROWS] = {
        {first, 0, 40}, {second, 3, 100}, {second, 3, 127}, {NULL, 0, KV_ROW_NONE}, {first, 0, 3}};
    static const uint32_t n_blocks[ROWS] = {3, 5, 5, 0, 1};
    struct kv_row got[ROWS];
    struct error err;
    const void *was = NULL;
    /* these are more passes than the host has staging copies */
    for (uint32_t pass = 0; pass < 9; pass++) {
        uint32_t ids[ROWS] = {pass, pass + 1}, back[ROWS];
        const void *d_ids = up(r, ids, sizeof ids);
        const struct kv_row *d_rows = r->gpu->ops->pass.upload_rows(r->gpu, rows, ROWS, TOKENS);
        expect(r, pass == 0 || d_rows == was, "the same place in the next pass");
        was = d_rows;
        r->gpu->ops->memory.copy(r->gpu, NULL, NULL, 0);
        must(r->gpu->ops->memory.read(r->gpu, back, d_ids, sizeof ids, &err), &err, "ids");
        expect(r, memcmp(ids, back, sizeof ids) == 0, "what was uploaded");
        must(r->gpu->ops->memory.read(r->gpu, got, d_rows, sizeof got, &err), &err, "rows");
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t table[8];
            expect(r, got[i].position == rows[i].position && got[i].n_dropped == rows[i].n_dropped,
                   "a row's position");
            must(r->gpu->ops->memory.read(r->gpu, table, got[i].blocks, n_blocks[i] * sizeof *table,
                                          &err),
                 &err, "table");
            expect(r,
                   n_blocks[i] == 0 ||
                       memcmp(table, rows[i].blocks, n_blocks[i] * sizeof *table) == 0,
                   "a row's table");
        }
        expect(r, got[1].blocks == got[2].blocks, "neighbours share a table");
    }
    uint8_t *much = mem_array(STAGING_BYTES, 1);
    (void)up(r, much, STAGING_BYTES);
    expect(r, r->gpu->ops->pass.sync(r->gpu, &err) == STATUS_LIMIT && strstr(err.text, "staging"),
           "too much for a pass");
    (void)up(r, much, STAGING_BYTES);
    (void)up(r, much, 100); /* this upload may belong to the same step, so it must fail too */
    expect(r, r->gpu->ops->pass.sync(r->gpu, &err) == STATUS_LIMIT, "kept until it is told");
    (void)up(r, much, 100);
    expect(r, r->gpu->ops->pass.sync(r->gpu, &err) == STATUS_OK, "the step after it");
    mem_free(much);
}

/* Runs one operator under a key. The rows that it gathers follow from the upload. */
static enum record_state record_pass(struct rig *r, struct rows *x, struct rows *out, uint64_t key,
                                     uint32_t i_first)
{
    const uint32_t list[] = {i_first, i_first + 1};
    const uint32_t *d_list = up(r, list, sizeof list);
    r->cpu->ops->math.gather(r->cpu, of_cpu(out), of_cpu(x), list, 2, x->s.dim);
    struct error why;
    enum record_state state = r->gpu->ops->recording.begin(r->gpu, key, true, &why);
    if (state == RECORD_PLAYED)
        return state;
    r->gpu->ops->math.gather(r->gpu, of_gpu(out), of_gpu(x), d_list, 2, x->s.dim);
    if (state == RECORD_BEGUN &&
        r->gpu->ops->recording.end(r->gpu, key, true, &why) != RECORD_PLAYED)
        return RECORD_REFUSED;
    return state;
}

static void test_records(struct rig *r)
{
    static const enum record_state states[] = {RECORD_NONE, RECORD_BEGUN, RECORD_PLAYED,
                                               RECORD_PLAYED};
    const struct shape s = {8, 40, 0, 0}, two = {2, 40, 0, 0};
    struct rows x = make(r, s, 1, false), out = make(r, two, 1, false);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            expect(r, record_pass(r, &x, &out, 77, i + 1) == states[i], "when it is recorded");
            compare(r, &out, s.dim, 0, "a recorded pass");
        }
        expect(r, record_pass(r, &x, &out, 78, 2) == RECORD_NONE, "another key");
        compare(r, &out, s.dim, 0, "another key");
        r->gpu->ops->recording.drop(r->gpu);
    }
    drop(r, &x);
    drop(r, &out);
}

static void test_memory(struct rig *r)
{
    uint64_t before = r->gpu->ops->memory.available_bytes(r->gpu);
    void *a = r->gpu->ops->memory.alloc(r->gpu, 1000);
    uint8_t zeros[1000];
    struct error err;
    must(r->gpu->ops->memory.read(r->gpu, zeros, a, sizeof zeros, &err), &err, "read");
    bool all = true;
    for (size_t i = 0; i < sizeof zeros; i++)
        all = all && zeros[i] == 0;
    expect(r, all, "memory is zeroed");
    expect(r, before - r->gpu->ops->memory.available_bytes(r->gpu) == 1000, "bytes that are left");
    expect(r, !r->gpu->ops->memory.alloc(r->gpu, before), "no more than there is");
    r->gpu->ops->memory.release(r->gpu, a, 1000);
    expect(r, r->gpu->ops->memory.available_bytes(r->gpu) == before, "bytes that came back");
    expect(r,
           r->gpu->ops->isa_level(r->gpu) == 0 &&
               strncmp(r->gpu->ops->isa_name(r->gpu), "sm_", 3) == 0,
           "its name");
    expect(r, r->gpu->ops->set_isa_level(r->gpu, 1, &err) == STATUS_UNSUPPORTED, "its level");
}

static void test_shape(struct rig *r, struct shape s)
{
    test_add_gated_clear(r, s);
    test_gather(r, s);
    test_gate_rows(r, s);
    test_norm_of_sums(r, s);
    test_add_norm(r, s);
    test_logits(r, s);
}

int main(int argc, char **argv)
{
    struct rig r = {.random = 0x9e3779b97f4a7c15u};
    struct error err;
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    const struct cuda_device_options o = {
        .utilization = 0.5, .staging_bytes = STAGING_BYTES, .n_threads = 2};
    needs_device();
    must(cuda_device_open(&o, &r.gpu, &err), &err, "device");
    must(cpu_device_open(&(struct cpu_device_options){.n_threads = 1, .isa_level = -1}, &r.cpu,
                         &err),
         &err, "CPU");
    test_memory(&r);
    test_uploads(&r);
    test_records(&r);
    for (size_t i = 0; i < sizeof rope_cases / sizeof *rope_cases; i++) {
        test_rope(&r, &rope_cases[i]);
        test_copy_heads(&r, &rope_cases[i]);
    }
    for (size_t i = 0; i < sizeof small_shapes / sizeof *small_shapes; i++)
        test_shape(&r, small_shapes[i]);
    for (size_t i = 0; !small && i < sizeof large_shapes / sizeof *large_shapes; i++)
        test_shape(&r, large_shapes[i]);
    must(r.gpu->ops->pass.sync(r.gpu, &err), &err, "at the end");
    r.gpu->ops->close(r.gpu);
    r.cpu->ops->close(r.cpu);
    printf("elementwise_test: %u checks, %u failures\n", r.n_cases, r.n_failures);
    return r.n_failures > 0;
}
