#pragma once
/* One pass over a model with a latent: rows of several sequences behind computed positions, the two
 * matrices of each head on both sides, the caches, and the result of the CPU backend, which runs
 * the five absorbed operators. */
#include <math.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tests/cuda/gpu_numbers.h"
#include "tests/unit/kernels/weights_fixture.h"

enum { MAX_SEQUENCES = 6 };
enum { CPU, CUDA, N_SIDES };
#define SPIKE 16.0f
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

static struct rng rng = {.state = 20251128};
static unsigned n_failures;

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
