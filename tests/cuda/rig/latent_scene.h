#pragma once
/* Holds the parts of a case of latent_test.c: its shape, the two matrices of each head on both
 * sides, the rows of its sequences and their numbers. latent_rig.h runs a pass over them. */
#include <math.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tests/cuda/rig/gpu_numbers.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

enum { MAX_SEQUENCES = 6 };
enum { CPU, CUDA, N_SIDES };
#define SPIKE 16.0f
struct sequence {
    uint32_t before, n; /* a sequence has n rows behind `before` computed positions */
};

struct latent_case {
    const char *name;
    uint32_t n_heads, kv_rank, nope, rope, v;
    enum dtype keys, values, kv;     /* types of the two matrices of each head, and of the cache */
    uint32_t block_tokens, n_chosen; /* n_chosen: number of runs that the rule takes */
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
    struct matrix *matrix;  /* matrices of the CPU, one for each head */
    struct weight *weights; /* weights of the device, one for each head */
    void *table;
    uint64_t table_bytes;
};

struct scene {
    const struct latent_case *c;
    bool spikes;
    uint32_t n_rows, n_all, n_blocks;
    struct kv_row *rows; /* `rows` has the shape [n_rows]: rows of the pass */
    /* `all_rows` has n_all rows in the order of writing, with computed positions first. */
    struct kv_row *all_rows;
    uint32_t *tables[MAX_SEQUENCES];
    struct heads_pair keys, values;
    float *q, *latents, *want; /* q and want have n_rows rows, latents has n_all rows */
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
    void *ptr = d->ops->memory.alloc(d, n_bytes);
    if (!ptr) {
        fprintf(stderr, "no memory for %llu bytes\n", (unsigned long long)n_bytes);
        exit(1);
    }
    if (host)
        d->ops->memory.write(d, ptr, host, n_bytes);
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
        h->weights[i].n_bytes = gpu->ops->loading.weight_bytes(gpu, dtype, n, k, 0);
        h->weights[i].data = gpu_new(gpu, NULL, h->weights[i].n_bytes);
        gpu->ops->loading.weight_pack(gpu, &h->weights[i], &h->matrix[i].rows);
        w[i] = &h->weights[i];
    }
    h->table_bytes = gpu->ops->loading.table_bytes(gpu, n_heads);
    h->table = gpu_new(gpu, NULL, h->table_bytes);
    gpu->ops->loading.head_table(gpu, w, n_heads, h->table);
    mem_free(w);
}

static void heads_close(struct device *gpu, uint32_t n_heads, struct heads_pair *h)
{
    for (uint32_t i = 0; i < n_heads; i++) {
        gpu->ops->memory.release(gpu, h->weights[i].data, h->weights[i].n_bytes);
        matrix_free(&h->matrix[i]);
    }
    gpu->ops->memory.release(gpu, h->table, h->table_bytes);
    mem_free(h->matrix);
    mem_free(h->weights);
}

/* Returns whether a position is at an edge (of a block, unit, chunk or sequence), or is written
 * by the pass. */
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
            s->tables[i][b] = next++ * 7 % s->n_blocks; /* the blocks are in an arbitrary order */
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
