#pragma once
/* Runs one pass over a scene of latent_scene.h. The header holds the caches, the operator's
 * arguments, and the result of the CPU backend, which runs the five absorbed operators. */
#include "tests/cuda/rig/latent_scene.h"

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
    memset(cache, 0xff, s->cache_bytes); /* unwritten memory is NaN */
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

/* Sets the views of buffers with elements of e bytes; `width` is the size of an output row. */
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

/* Writes the keys and values of all rows to the CPU's cache, and the keys and values of the
 * computed rows to the device's cache. */
static void write_computed(struct scene *s, struct device *cpu)
{
    const struct kv_write_params p = {.k = {s->latents, latent_dim(s->c)},
                                      .v = {s->latents, latent_dim(s->c)},
                                      .rows = s->all_rows,
                                      .n_rows = s->n_all,
                                      .n_heads = 1,
                                      .kv = &s->kv[CPU]};
    cpu->ops->math.kv_write(cpu, &p);
}

/* Returns the latents of the pass's rows. */
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

/* Returns a scale with which scores deviate by about `want`, estimated from a few queries and
 * keys. */
static float scale_for(const struct scene *s, const float *queries, const float *keys, double want)
{
    const uint32_t dim = latent_dim(s->c), n_queries = s->n_rows * s->c->n_heads;
    float scores[256];
    for (uint32_t i = 0; i < 256; i++) {
        const float *q = queries + (uint64_t)(i / 16 % n_queries) * dim;
        const float *k = keys + (uint64_t)(i % 16 % s->n_rows) * dim;
        double sum = 0;
        for (uint32_t e = 0; e < dim; e++)
            sum += (double)q[e] * (double)k[e];
        scores[i] = (float)sum;
    }
    return (float)(want / deviation(scores, 256));
}

/* Computes the CPU's result. The scene's scale follows from its queries. */
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
        cpu->ops->math.linear(cpu, &l);
    }
    cpu->ops->math.copy_heads(cpu, &p.rope);
    s->scale = p.attention.scale = scale_for(s, latent, k, s->spikes ? 0.02 : 1.0);
    cpu->ops->math.attention(cpu, &p.attention);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct linear_params l = {.x = p.values.x, .n_rows = s->n_rows, .n_parts = 1};
        l.x.data = a + (uint64_t)h * c->kv_rank;
        l.parts[0].w = &s->values.matrix[h].w;
        l.parts[0].out = (struct view){s->want + (uint64_t)h * c->v, p.values.out.stride};
        cpu->ops->math.linear(cpu, &l);
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
    gpu->ops->memory.release(gpu, s->kv[CUDA].k, s->cache_bytes);
    mem_free(s->kv[CPU].k);
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        mem_free(s->tables[i]);
    mem_free(s->rows);
    mem_free(s->all_rows);
    mem_free(s->q);
    mem_free(s->latents);
    mem_free(s->want);
}
