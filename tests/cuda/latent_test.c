/* MLA's attention (`latent` of kernels/ops.h) in both of its forms against the CPU backend, which
 * runs the five absorbed operators. Sequences have computed positions in front of their rows, as
 * chunks of a prompt and hits of the prefix cache have; passes mix prompts and decode rows. Each
 * case runs
 *   never expanded    the bounds hold for the absorbed form;
 *   as it is chosen   the runs that the rule takes are expanded;
 *   always expanded   with the scratch that a worker has, and with so little that heads come in
 *                     turns and keys in chunks.
 * and each of those twice: with scores that differ, so that a wrong score shows, and with scores
 * that are nearly equal and keys at the edges of blocks, units, chunks and sequences sixteen times
 * as large as others, so that one key too many or too few shows. Over the emulation the products
 * that were launched are counted and held against the formula.
 *   latent_test [--small]   exit status 0 fine, 1 failures, 77 no device */
#include <math.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_latent.h"
#include "kernels/cuda/cuda_linear.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/gpu_numbers.h"
#include "tests/cuda/needs_device.h"
#include "tests/unit/kernels/weights_fixture.h"

#pragma weak emulate_n_operations

enum { MAX_SEQUENCES = 6 };
enum { CPU, CUDA, N_SIDES };
#define SPIKE 16.0f
/* Of a row's root mean square, all rows of a case together; and one row. Weights of codes are
 * rounded to bfloat16 when they are expanded, and a cache of codes is rounded on both sides alike.
 */
#define MOST_OFF     0.012
#define MOST_ROW_OFF 0.03

struct sequence {
    uint32_t before, n; /* n rows behind so many computed positions */
};

struct latent_case {
    const char *name;
    uint32_t n_heads, kv_rank, nope, rope, v;
    enum dtype keys, values, kv;     /* of the two matrices of each head, and of the cache */
    uint32_t block_tokens, n_chosen; /* n_chosen: runs that the rule takes */
    struct sequence sequences[MAX_SEQUENCES];
};

#define B16 DTYPE_BF16
static const struct latent_case small_cases[] = {
    {"a prompt", 2, 512, 128, 64, 128, B16, B16, B16, 16, 1, {{0, 140}}},
    {"a chunk behind another", 3, 64, 24, 16, 20, B16, B16, B16, 16, 1, {{96, 257}}},
    {"too few rows behind a context", 1, 512, 128, 64, 128, B16, B16, B16, 16, 0, {{600, 130}}},
    {"prompts and decode",
     5,
     40,
     16,
     8,
     24,
     B16,
     B16,
     B16,
     8,
     2,
     {{33, 1}, {0, 129}, {70, 1}, {31, 20}, {17, 150}, {50, 3}}},
    {"a cache of fp8, weights of 8 bits",
     3,
     64,
     32,
     8,
     16,
     DTYPE_Q8_0,
     DTYPE_FP8,
     DTYPE_F8_E4M3,
     16,
     2,
     {{0, 128}, {40, 131}}},
    {"a cache of int8, weights of 4 bits",
     1,
     256,
     32,
     64,
     128,
     DTYPE_Q4_0,
     DTYPE_Q4_K,
     DTYPE_I8,
     20,
     1,
     {{21, 133}, {64, 1}}},
    {"a few rows behind a long context", 3, 64, 24, 16, 20, B16, B16, B16, 16, 0, {{1000, 40}}},
    {"the same of fp8",
     2,
     128,
     32,
     16,
     32,
     DTYPE_FP8,
     DTYPE_FP8,
     DTYPE_F8_E4M3,
     16,
     0,
     {{900, 33}, {700, 1}}},
    {"a cache of float16",
     2,
     32,
     64,
     32,
     18,
     DTYPE_INT8,
     DTYPE_MXFP4,
     DTYPE_F16,
     16,
     1,
     {{5, 160}}},
};
static const struct latent_case large_cases[] = {
    {"DeepSeek-V2-Lite", 16, 512, 128, 64, 128, B16, B16, B16, 16, 1, {{0, 4096}}},
    {"DeepSeek-V2-Lite, a last chunk",
     16,
     512,
     128,
     64,
     128,
     B16,
     B16,
     DTYPE_F8_E4M3,
     16,
     2,
     {{7000, 1192}, {3000, 1}, {0, 700}}},
    {"DeepSeek-V3, all heads",
     128,
     512,
     128,
     64,
     128,
     DTYPE_FP8,
     DTYPE_FP8,
     B16,
     16,
     1,
     {{500, 900}}},
};

static struct rng rng = {.state = 20251128};
static unsigned n_cases, n_failures, n_chunked, n_recorded;
static double worst;

static void failed(const struct latent_case *c, const char *what, double got, double want)
{
    if (n_failures++ < 20)
        printf("FAILED %s: %s: %g, want %g\n", c->name, what, got, want);
}

/* ---- one case ---- */

struct heads_pair {
    struct matrix *matrix;  /* [head]: of the CPU */
    struct weight *weights; /* [head]: of the device */
    void *table;
    uint64_t table_bytes;
};

struct scene {
    const struct latent_case *c;
    bool spikes;
    uint32_t n_rows, n_all, n_blocks;
    struct kv_row *rows;     /* [n_rows], of the pass */
    struct kv_row *all_rows; /* [n_all]: computed positions first, as they are written */
    uint32_t *tables[MAX_SEQUENCES];
    struct heads_pair keys, values;
    float *q, *latents, *want; /* [n_rows][..], [n_all][..] */
    struct kv_cache kv[N_SIDES];
    uint64_t cache_bytes;
    float scale;
};

static uint32_t q_width(const struct latent_case *c)
{
    return c->n_heads * (c->nope + c->rope);
}
static uint32_t latent_dim(const struct latent_case *c)
{
    return c->kv_rank + c->rope;
}

static void *gpu_new(struct device *d, const void *host, uint64_t n_bytes)
{
    void *ptr = d->ops->alloc(d, n_bytes);
    if (!ptr) {
        fprintf(stderr, "no memory for %llu bytes\n", (unsigned long long)n_bytes);
        exit(1);
    }
    if (host)
        d->ops->write(d, ptr, host, n_bytes);
    return ptr;
}

static uint16_t *narrow(const float *x, uint64_t n)
{
    uint16_t *out = mem_array(n, sizeof *out);
    for (uint64_t i = 0; i < n; i++)
        out[i] = to_bf16(x[i]);
    return out;
}

static void heads_open(struct device *gpu, enum dtype dtype, uint32_t n_heads, uint32_t n,
                       uint32_t k, struct heads_pair *h)
{
    const struct weight **w = mem_array(n_heads, sizeof *w);
    h->matrix = mem_array(n_heads, sizeof *h->matrix);
    h->weights = mem_array(n_heads, sizeof *h->weights);
    for (uint32_t i = 0; i < n_heads; i++) {
        h->matrix[i] = matrix_new(&rng, dtype, n, k);
        h->weights[i] = h->matrix[i].w;
        h->weights[i].n_bytes = gpu->ops->weight_bytes(gpu, dtype, n, k, 0);
        h->weights[i].data = gpu_new(gpu, NULL, h->weights[i].n_bytes);
        gpu->ops->weight_pack(gpu, &h->weights[i], &h->matrix[i].rows);
        w[i] = &h->weights[i];
    }
    h->table_bytes = gpu->ops->table_bytes(gpu, n_heads);
    h->table = gpu_new(gpu, NULL, h->table_bytes);
    gpu->ops->head_table(gpu, w, n_heads, h->table);
    mem_free(w);
}

static void heads_close(struct device *gpu, uint32_t n_heads, struct heads_pair *h)
{
    for (uint32_t i = 0; i < n_heads; i++) {
        gpu->ops->release(gpu, h->weights[i].data, h->weights[i].n_bytes);
        matrix_free(&h->matrix[i]);
    }
    gpu->ops->release(gpu, h->table, h->table_bytes);
    mem_free(h->matrix);
    mem_free(h->weights);
}

/* Positions where something begins or ends, and those that the pass writes. */
static bool is_edge(const struct latent_case *c, const struct sequence *s, uint32_t position)
{
    return position % 32 == 0 || position % 32 == 31 || position % c->block_tokens == 0 ||
           position == 0 || position + 1 == s->before || position == s->before ||
           position + 1 == s->before + s->n;
}

static void rows_make(struct scene *s)
{
    const struct latent_case *c = s->c;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++) {
        const struct sequence *q = &c->sequences[i];
        s->n_rows += q->n;
        s->n_all += q->before + q->n;
        s->n_blocks += (q->before + q->n) / c->block_tokens + 1;
    }
    while (s->n_blocks % 7 == 0)
        s->n_blocks++;
    s->rows = mem_array(s->n_rows, sizeof *s->rows);
    s->all_rows = mem_array(s->n_all, sizeof *s->all_rows);
    uint32_t n = 0, n_all = 0, next = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++) {
        const struct sequence *q = &c->sequences[i];
        s->tables[i] = mem_array(s->n_blocks, sizeof *s->tables[i]);
        for (uint32_t b = 0; b <= (q->before + q->n) / c->block_tokens; b++)
            s->tables[i][b] = next++ * 7 % s->n_blocks; /* in no order */
        for (uint32_t k = 0; k < q->before + q->n; k++) {
            const struct kv_row row = {s->tables[i], 0, k};
            s->all_rows[n_all++] = row;
            if (k >= q->before)
                s->rows[n++] = row;
        }
    }
}

static void numbers_make(struct scene *s)
{
    const struct latent_case *c = s->c;
    const uint32_t dim = latent_dim(c);
    s->q = mem_array((uint64_t)s->n_rows * q_width(c), sizeof *s->q);
    s->latents = mem_array((uint64_t)s->n_all * dim, sizeof *s->latents);
    s->want = mem_array((uint64_t)s->n_rows * c->n_heads * c->v, sizeof *s->want);
    for (uint64_t i = 0; i < (uint64_t)s->n_rows * q_width(c); i++)
        s->q[i] = from_bf16(to_bf16(random_unit(&rng)));
    uint32_t row = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        for (uint32_t k = 0; k < c->sequences[i].before + c->sequences[i].n; k++, row++) {
            const float large = s->spikes && is_edge(c, &c->sequences[i], k) ? SPIKE : 1.0f;
            for (uint32_t e = 0; e < dim; e++)
                s->latents[(uint64_t)row * dim + e] = from_bf16(to_bf16(random_unit(&rng) * large));
        }
}

static void caches_open(struct scene *s, struct device *gpu)
{
    const struct latent_case *c = s->c;
    struct kv_cache kv = {.dtype = c->kv,
                          .n_kv_heads = 1,
                          .head_dim = latent_dim(c),
                          .v_dim = c->kv_rank,
                          .block_tokens = c->block_tokens};
    kv.block_stride = kv_keys_bytes(c->kv, 1, kv.head_dim, c->block_tokens, true) + 48;
    s->cache_bytes = kv.block_stride * s->n_blocks;
    uint8_t *cache = mem_array(s->cache_bytes, 1);
    memset(cache, 0xff, s->cache_bytes); /* what nobody wrote is NaN */
    s->kv[CPU] = s->kv[CUDA] = kv;
    kv_layout(&s->kv[CPU], cache, true);
    kv_layout(&s->kv[CUDA], gpu_new(gpu, cache, s->cache_bytes), true);
}

static struct latent_params params_of(const struct scene *s, int side)
{
    const struct latent_case *c = s->c;
    const struct heads_pair *k = &s->keys, *v = &s->values;
    const uint32_t d = c->nope + c->rope, dim = latent_dim(c), n = c->n_heads;
    return (struct latent_params){
        .keys = {.n_rows = s->n_rows,
                 .n_heads = n,
                 .in_stride = d,
                 .out_stride = dim,
                 .first = side == CPU ? &k->matrix[0].w : &k->weights[0],
                 .table = k->table},
        .rope =
            {.n_rows = s->n_rows, .n_heads = n, .from_stride = d, .to_stride = dim, .n = c->rope},
        .write = {.n_rows = s->n_rows, .n_heads = 1, .kv = &s->kv[side]},
        .attention = {.rows = s->rows,
                      .n_rows = s->n_rows,
                      .n_heads = n,
                      .group = n,
                      .scale = s->scale,
                      .kv = &s->kv[side]},
        .values = {.n_rows = s->n_rows,
                   .n_heads = n,
                   .in_stride = c->kv_rank,
                   .out_stride = c->v,
                   .first = side == CPU ? &v->matrix[0].w : &v->weights[0],
                   .table = v->table}};
}

/* Buffers, of elements of e bytes; width: of a row of the output. */
static void views_set(struct latent_params *p, void *q, void *latent, void *k, void *a, void *out,
                      uint32_t e)
{
    const uint32_t n = p->keys.n_heads, dim = p->attention.kv->head_dim;
    const uint32_t rank = p->attention.kv->v_dim, nope = p->keys.first->k;
    p->keys.x = (struct view){q, n * p->keys.in_stride};
    p->keys.out = (struct view){latent, n * dim};
    p->rope.from = (struct view){(uint8_t *)q + (size_t)nope * e, n * p->keys.in_stride};
    p->rope.to = (struct view){(uint8_t *)latent + (size_t)rank * e, n * dim};
    p->write.k = p->write.v = (struct view){k, dim};
    p->attention.q = p->keys.out;
    p->attention.out = p->values.x = (struct view){a, n * rank};
    p->values.out = (struct view){out, n * p->values.out_stride};
}

/* Keys and values of all rows into the cache of the CPU; of the computed ones into the device's. */
static void write_computed(struct scene *s, struct device *cpu)
{
    const struct kv_write_params p = {.k = {s->latents, latent_dim(s->c)},
                                      .v = {s->latents, latent_dim(s->c)},
                                      .rows = s->all_rows,
                                      .n_rows = s->n_all,
                                      .n_heads = 1,
                                      .kv = &s->kv[CPU]};
    cpu->ops->kv_write(cpu, &p);
}

/* The latents of the pass's rows. */
static float *pass_latents(const struct scene *s)
{
    const uint32_t dim = latent_dim(s->c);
    float *out = mem_array((uint64_t)s->n_rows * dim, sizeof *out);
    uint32_t row = 0, from = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++) {
        const struct sequence *q = &s->c->sequences[i];
        memcpy(out + (uint64_t)row * dim, s->latents + (uint64_t)(from + q->before) * dim,
               (uint64_t)q->n * dim * sizeof *out);
        row += q->n, from += q->before + q->n;
    }
    return out;
}

static double deviation(const float *x, uint64_t n)
{
    double squares = 0;
    for (uint64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    return sqrt(squares / (double)n);
}

/* The scale with which scores deviate by `want`, from what a few queries give with a few keys. */
static float scale_for(const struct scene *s, const float *queries, const float *keys, double want)
{
    const uint32_t dim = latent_dim(s->c);
    float scores[256];
    for (uint32_t i = 0; i < 256; i++) {
        const float *q = queries + (uint64_t)(i / 16) * dim, *k = keys + (uint64_t)(i % 16) * dim;
        double sum = 0;
        for (uint32_t e = 0; e < dim; e++)
            sum += (double)q[e] * (double)k[e];
        scores[i] = (float)sum;
    }
    return (float)(want / deviation(scores, 256));
}

/* What the CPU gives; the scene's scale follows from its queries. */
static void run_cpu(struct scene *s, struct device *cpu)
{
    const struct latent_case *c = s->c;
    const uint64_t n = s->n_rows, heads = c->n_heads;
    float *latent = mem_array(n * heads * latent_dim(c), sizeof *latent);
    float *a = mem_array(n * heads * c->kv_rank, sizeof *a), *k = pass_latents(s);
    struct latent_params p = params_of(s, CPU);
    views_set(&p, s->q, latent, k, a, s->want, sizeof *a);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct linear_params l = {.x = p.keys.x, .n_rows = s->n_rows, .n_parts = 1};
        l.x.data = s->q + (uint64_t)h * p.keys.in_stride;
        l.parts[0].w = &s->keys.matrix[h].w;
        l.parts[0].out = (struct view){latent + (uint64_t)h * latent_dim(c), p.keys.out.stride};
        cpu->ops->linear(cpu, &l);
    }
    cpu->ops->copy_heads(cpu, &p.rope);
    s->scale = p.attention.scale = scale_for(s, latent, k, s->spikes ? 0.02 : 1.0);
    cpu->ops->attention(cpu, &p.attention);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct linear_params l = {.x = p.values.x, .n_rows = s->n_rows, .n_parts = 1};
        l.x.data = a + (uint64_t)h * c->kv_rank;
        l.parts[0].w = &s->values.matrix[h].w;
        l.parts[0].out = (struct view){s->want + (uint64_t)h * c->v, p.values.out.stride};
        cpu->ops->linear(cpu, &l);
    }
    mem_free(latent);
    mem_free(a);
    mem_free(k);
}

static void scene_open(struct scene *s, const struct latent_case *c, bool spikes,
                       struct device *cpu, struct device *gpu)
{
    *s = (struct scene){.c = c, .spikes = spikes};
    rows_make(s);
    numbers_make(s);
    heads_open(gpu, c->keys, c->n_heads, c->kv_rank, c->nope, &s->keys);
    heads_open(gpu, c->values, c->n_heads, c->v, c->kv_rank, &s->values);
    caches_open(s, gpu);
    write_computed(s, cpu);
    run_cpu(s, cpu);
}

static void scene_close(struct scene *s, struct device *gpu)
{
    heads_close(gpu, s->c->n_heads, &s->keys);
    heads_close(gpu, s->c->n_heads, &s->values);
    gpu->ops->release(gpu, s->kv[CUDA].k, s->cache_bytes);
    mem_free(s->kv[CPU].k);
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        mem_free(s->tables[i]);
    mem_free(s->rows);
    mem_free(s->all_rows);
    mem_free(s->q);
    mem_free(s->latents);
    mem_free(s->want);
}

/* ---- on the device ---- */

static void compare(const struct scene *s, const uint16_t *out, const char *how)
{
    const struct latent_case *c = s->c;
    const uint32_t width = c->n_heads * c->v;
    double all = 0;
    for (uint32_t row = 0; row < s->n_rows; row++) {
        const float *want = s->want + (uint64_t)row * width;
        double off = 0;
        for (uint32_t i = 0; i < width; i++) {
            const double d = (double)from_bf16(out[(uint64_t)row * width + i]) - (double)want[i];
            off += d * d;
        }
        off = sqrt(off / width) / deviation(want, width);
        all += off * off;
        if (!(off <= MOST_ROW_OFF)) {
            printf("%s, row %u at %u: ", how, row, s->rows[row].position);
            failed(c, s->spikes ? "a row, spikes" : "a row", off, MOST_ROW_OFF);
            return;
        }
    }
    all = sqrt(all / s->n_rows);
    worst = all > worst ? all : worst;
    if (!(all <= MOST_OFF)) {
        printf("%s: ", how);
        failed(c, s->spikes ? "all rows, spikes" : "all rows", all, MOST_OFF);
    }
}

/* The pass on the device; scratch_bytes 0: what a worker has; key: of a pass that may be recorded,
 * or 0. Operations of products that it launched, where they are counted. */
static unsigned long long run_gpu(struct scene *s, struct device *gpu, uint64_t scratch_bytes,
                                  uint64_t key, const char *how)
{
    const struct latent_case *c = s->c;
    const struct ops *ops = gpu->ops;
    const uint64_t n = s->n_rows, heads = c->n_heads;
    const struct scratch_shape shape = {.n_rows = s->n_rows,
                                        .n_heads = c->n_heads,
                                        .n_kv_heads = 1,
                                        .head_dim = latent_dim(c),
                                        .v_dim = c->kv_rank,
                                        .is_latent = true,
                                        .head_nope = c->nope,
                                        .head_v = c->v,
                                        .max_len = s->n_all,
                                        .most_weight_elements = 1024};
    if (scratch_bytes == 0)
        scratch_bytes = ops->scratch_bytes(gpu, &shape);
    float *latents = pass_latents(s);
    uint16_t *q = narrow(s->q, n * q_width(c)), *k = narrow(latents, n * latent_dim(c));
    uint16_t *out = mem_array(n * heads * c->v, sizeof *out);
    memset(out, 0xff, n * heads * c->v * sizeof *out);
    const uint64_t sizes[] = {n * q_width(c) * 2,    n * heads * latent_dim(c) * 2,
                              n * latent_dim(c) * 2, n * heads * c->kv_rank * 2,
                              n * heads * c->v * 2,  scratch_bytes};
    void *rooms[6];
    const void *const host[6] = {q, NULL, k, NULL, out, NULL};
    for (int i = 0; i < 6; i++)
        rooms[i] = gpu_new(gpu, host[i], sizes[i]);
    ops->write(gpu, s->kv[CUDA].k, s->kv[CPU].k, s->cache_bytes);
    struct latent_params p = params_of(s, CUDA);
    views_set(&p, rooms[0], rooms[1], rooms[2], rooms[3], rooms[4], 2);
    ops->begin(gpu);
    ops->use_scratch(gpu, rooms[5], scratch_bytes);
    p.attention.rows = p.write.rows = ops->upload_rows(gpu, s->rows, s->n_rows, c->block_tokens);
    const unsigned long long before = emulate_n_operations ? emulate_n_operations() : 0;
    struct error err = {0};
    if (key && ops->record(gpu, key, true, &err) != RECORD_NONE)
        failed(c, "the first pass of a key is enqueued as it is", 1, 0);
    ops->latent(gpu, &p);
    must(ops->read(gpu, out, rooms[4], sizes[4], &err), &err, how);
    const unsigned long long after = emulate_n_operations ? emulate_n_operations() : 0;
    compare(s, out, how);
    for (int i = 0; i < 6; i++)
        ops->release(gpu, rooms[i], sizes[i]);
    mem_free(latents);
    mem_free(q);
    mem_free(k);
    mem_free(out);
    n_cases++;
    return after - before;
}

/* ---- what is counted ---- */

/* Products of the expanded form, of runs of at least `least` rows whose heads are one turn: of each
 * tile its 128 rows (of a head of 192 and a value of 128 dimensions) with whole units of 32 keys up
 * to its last row's; and keys and values out of the latents. */
static unsigned long long expanded_operations(const struct latent_case *c, uint32_t least)
{
    const uint32_t value = (c->v + 7) / 8 * 8;
    unsigned long long n = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++) {
        const struct sequence *s = &c->sequences[i];
        if (s->n < least)
            continue;
        for (uint32_t row = 0; row < s->n; row += 128) {
            const uint32_t rows = s->n - row < 128 ? s->n - row : 128;
            const uint32_t keys = (s->before + row + rows + 31) / 32 * 32;
            n += 2ull * c->n_heads * 128 * keys * (192 + 128);
        }
        n += 2ull * c->n_heads * (s->before + s->n) * c->kv_rank * (c->nope + value);
    }
    return n;
}

/* ---- cases ---- */

/* Scratch in which a turn has so many keys of one head, and room for so many parts. */
static uint64_t tight_bytes(const struct scene *s, uint32_t n_keys, uint32_t n_parts)
{
    const struct latent_case *c = s->c;
    const struct cuda_latent_shape shape = {c->n_heads, c->kv_rank, c->nope, c->rope, c->v};
    const uint64_t head = cuda_latent_head(&shape), unit = 256;
    const uint64_t parts[] = {c->n_heads * head * c->kv_rank * 2, (uint64_t)n_keys * c->kv_rank * 2,
                              (uint64_t)n_keys * c->rope * 2, n_keys * head * 2,
                              cuda_latent_parts_bytes(&shape, (uint64_t)s->n_rows * n_parts)};
    uint64_t n = GPU_BLAS_WORKSPACE;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        n += (parts[i] + unit - 1) / unit * unit;
    return n;
}

static uint32_t longest(const struct latent_case *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        most = c->sequences[i].before + c->sequences[i].n > most
                   ? c->sequences[i].before + c->sequences[i].n
                   : most;
    return most;
}

enum { NEVER, CHOSEN, ALWAYS, N_DEVICES };

static void check_counts(const struct latent_case *c, unsigned long long chosen,
                         unsigned long long never, unsigned long long always)
{
    uint32_t n_long = 0;
    if (!emulate_n_operations)
        return;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        n_long += c->sequences[i].n >= 1;
    const unsigned long long want = expanded_operations(c, 1);
    if (always != want)
        failed(c, "operations, always expanded", (double)always, (double)want);
    if (c->n_chosen == n_long && chosen != want)
        failed(c, "operations, as chosen", (double)chosen, (double)want);
    if ((c->n_chosen == 0) != (chosen == never))
        failed(c, "operations of what ought to be absorbed", (double)chosen, (double)never);
}

/* As little scratch as does: a turn for each head, then a few chunks of one sequence's keys, where
 * that takes less than all of them at once. */
static void run_tight(struct scene *s, struct device *gpu)
{
    const uint32_t keys = longest(s->c), each = (keys / 3 + 32) / 32 * 32;
    const uint64_t turns = tight_bytes(s, keys, 0), chunks = tight_bytes(s, each, 3);
    if (s->c->n_heads > 1)
        (void)run_gpu(s, gpu, turns, 0, "a head a turn");
    if (chunks >= turns)
        return;
    (void)run_gpu(s, gpu, chunks, 0, "keys in chunks");
    n_chunked++;
}

static void run_case(const struct latent_case *c, struct device *cpu, struct device *const *devices)
{
    for (int spikes = 0; spikes < 2; spikes++) {
        unsigned long long n[N_DEVICES];
        for (int d = 0; d < N_DEVICES; d++) {
            struct scene s;
            const char *const how[] = {"never", "as chosen", "always"};
            scene_open(&s, c, spikes, cpu, devices[d]);
            n[d] = run_gpu(&s, devices[d], 0, 0, how[d]);
            if (d == ALWAYS)
                run_tight(&s, devices[d]);
            if (d == ALWAYS && emulate_n_operations &&
                run_gpu(&s, devices[d], 0, ++n_recorded, "may be recorded") != n[NEVER])
                failed(c, "a pass that may be recorded was expanded", 1, 0);
            scene_close(&s, devices[d]);
        }
        check_counts(c, n[CHOSEN], n[NEVER], n[ALWAYS]);
    }
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    static const uint32_t expand_rows[] = {[NEVER] = UINT32_MAX, [CHOSEN] = 0, [ALWAYS] = 1};
    struct device *cpu, *devices[N_DEVICES];
    struct error err = {0};
    needs_device();
    must(cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = -1}, &cpu, &err),
         &err, "CPU");
    for (int d = 0; d < N_DEVICES; d++)
        must(cuda_device_open(&(struct cuda_device_options){.utilization = 0.3,
                                                            .n_threads = 1,
                                                            .staging_bytes = 4 << 20,
                                                            .expand_rows = expand_rows[d]},
                              &devices[d], &err),
             &err, "device");
    for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++)
        run_case(&small_cases[i], cpu, devices);
    for (size_t i = 0; i < sizeof large_cases / sizeof *large_cases && !is_small; i++)
        run_case(&large_cases[i], cpu, devices);
    for (int d = 0; d < N_DEVICES; d++)
        devices[d]->ops->close(devices[d]);
    cpu->ops->close(cpu);
    if (n_chunked < 4)
        failed(&small_cases[0], "cases whose keys came in chunks", n_chunked, 4);
    printf("latent_test: %u cases, rows off by %.4f at most, %u failures\n", n_cases, worst,
           n_failures);
    return n_failures > 0;
}
