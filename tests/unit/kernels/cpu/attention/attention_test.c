/* Tests attention for one row, in every kernel level this CPU has. The tests write keys and
 * values of a sequence into scattered blocks of a cache. They compare the output with a plain
 * sum in double over the numbers that the cache returns (kv_plain.h). Invariants: all levels
 * with fused multiply-adds give the same bits, and these do not depend on where blocks are, how
 * large they are or how many are left. Memory that is not written is NaN, so that a wrong read
 * changes the result. */
#define ISA scalar_fma
#define VEC_SCALAR_FMA
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/attention/attention.h"
ATTENTION_DECLARE(scalar_fma);
#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/kv_store_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "tests/unit/kernels/cpu/attention/kv_plain.h"

struct set {
    const char *name;
    enum cpu_isa needs;
    bool fused;
    void (*attention)(const struct attention_params *, uint32_t, uint32_t, float *);
    void (*kv_store)(void *, enum dtype, float *, const float *, uint32_t);
};
static const struct set sets[] = {
    {"scalar", CPU_ISA_SCALAR, false, attention_scalar, kv_store_scalar},
    {"scalar_fma", CPU_ISA_SCALAR, true, attention_scalar_fma, kv_store_scalar_fma},
#define SET(upper, lower) {#lower, CPU_ISA_##upper, true, attention_##lower, kv_store_##lower},
    CPU_VECTOR_LEVELS(SET)};
enum { N_SETS = sizeof sets / sizeof sets[0], FUSED = 1 };

struct shape {
    uint32_t n_kv_heads, group, head_dim, block_tokens, window, position;
    uint32_t v_dim; /* size of a latent's value, which is its beginning; 0 = separate values */
    bool sinks;
    float softcap;
    enum dtype dtype;
};

/* `sequence_kv` is a sequence whose blocks are scattered in a cache. `k` and `v` hold the
 * numbers before they were stored, rounded to the cache's data type. */
struct sequence_kv {
    struct shape s;
    struct kv_cache kv;
    uint8_t *memory;
    uint32_t *blocks, n_dropped;
    float *k, *v; /* `k` and `v` have the shape [position + 1][n_kv_heads * head_dim] */
    float *q;
    size_t cache_bytes;
};

static const enum dtype kv_dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
enum { N_DTYPES = sizeof kv_dtypes / sizeof *kv_dtypes };

static float uniform(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}

static void store_one(const struct sequence_kv *t, const struct set *set, bool values, uint32_t pos,
                      uint32_t h)
{
    const struct kv_cache *kv = &t->kv;
    uint32_t dim = t->s.head_dim, bt = t->s.block_tokens, at = pos % bt, end = kv_part_end(kv);
    size_t elem = kv_elem_bytes(kv->dtype), block = t->blocks[pos / bt - t->n_dropped];
    uint8_t *to = (uint8_t *)(values ? kv->v : kv->k) + block * kv->block_stride +
                  ((size_t)h * bt + at) * dim * elem;
    const float *from = (values ? t->v : t->k) + ((size_t)pos * t->s.n_kv_heads + h) * dim;
    float *scale = kv->k_scales ? kv_scales(kv, values, block, h) + at : NULL;
    set->kv_store(to, kv->dtype, scale, from, end);
    if (end < dim)
        set->kv_store(to + end * elem, kv->dtype, scale ? scale + bt : NULL, from + end, dim - end);
}

static void store_all(struct sequence_kv *t, const struct set *set)
{
    for (uint32_t pos = t->n_dropped * t->s.block_tokens; pos <= t->s.position; pos++)
        for (uint32_t h = 0; h < t->s.n_kv_heads; h++)
            for (int values = 0; values <= !kv_is_latent(&t->kv); values++)
                store_one(t, set, values, pos, h);
}

/* Fills the cache. Positions that are not written are NaN, so that a read beyond the tokens
 * changes the result. */
static void sequence_init(struct sequence_kv *t, const struct shape *s, struct rng *r)
{
    uint32_t n_blocks = s->position / s->block_tokens + 1, n_cache = n_blocks * 2 + 1;
    size_t row = (size_t)s->n_kv_heads * s->head_dim, n = (size_t)(s->position + 1) * row;
    uint32_t first = s->window && s->position + 1 > s->window ? s->position + 1 - s->window : 0;
    *t = (struct sequence_kv){.s = *s, .n_dropped = first / s->block_tokens};
    /* Other data is between two blocks. */
    bool latent = s->v_dim > 0;
    size_t keys = kv_keys_bytes(s->dtype, s->n_kv_heads, s->head_dim, s->block_tokens, latent);
    size_t stride = (latent ? 1 : 2) * keys + 48;
    t->cache_bytes = n_cache * stride;
    t->memory = mem_alloc(t->cache_bytes);
    t->kv = (struct kv_cache){.block_stride = stride,
                              .dtype = s->dtype,
                              .n_kv_heads = s->n_kv_heads,
                              .head_dim = s->head_dim,
                              .v_dim = s->v_dim ? s->v_dim : s->head_dim,
                              .block_tokens = s->block_tokens};
    kv_layout(&t->kv, t->memory, latent);
    memset(t->memory, 0xff, t->cache_bytes);
    uint32_t *all = mem_array(n_cache, sizeof *all);
    for (uint32_t i = 0; i < n_cache; i++)
        all[i] = i;
    for (uint32_t i = 0; i + 1 < n_cache; i++) {
        uint32_t j = i + (uint32_t)rng_below(r, n_cache - i), swap = all[i];
        all[i] = all[j];
        all[j] = swap;
    }
    t->blocks = all;
    t->k = mem_array(n, sizeof(float));
    t->v = mem_array(n, sizeof(float));
    t->q = mem_array(row * s->group, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        t->k[i] = 2.0f * uniform(r);
        t->v[i] = 2.0f * uniform(r);
    }
    for (size_t i = 0; i < row * s->group; i++)
        t->q[i] = 2.0f * uniform(r);
    store_all(t, &sets[0]);
    /* The plain sum uses the numbers that the cache returns. */
    for (size_t i = 0; i < n; i += s->head_dim) {
        kv_plain_head(t->k + i, &t->kv, s->dtype);
        kv_plain_head(t->v + i, &t->kv, s->dtype);
    }
}

static void sequence_fini(struct sequence_kv *t)
{
    mem_free(t->memory);
    mem_free(t->blocks);
    mem_free(t->k);
    mem_free(t->v);
    mem_free(t->q);
}

static const float scale = 0.37f;
static const float sinks[] = {3, -2, 30, 0, 1, -50, 2, 8, 0.5f, 1, 7, 2, 4, 3, 2, 1, 5, 6};

static void plain_attention(const struct sequence_kv *t, uint32_t head, double *out)
{
    uint32_t dim = t->s.head_dim, end = t->s.position + 1, kv_head = head / t->s.group;
    uint32_t first = t->s.window && end > t->s.window ? end - t->s.window : 0;
    size_t row = (size_t)t->s.n_kv_heads * dim;
    double *w = mem_array(end, sizeof *w), max = -(double)INFINITY, sum = 0;
    for (uint32_t p = first; p < end; p++) {
        double dot = 0;
        for (uint32_t i = 0; i < dim; i++)
            dot += (double)t->q[(size_t)head * dim + i] * (double)t->k[p * row + kv_head * dim + i];
        dot *= (double)scale;
        w[p] = t->s.softcap > 0 ? (double)t->s.softcap * tanh(dot / (double)t->s.softcap) : dot;
        max = w[p] > max ? w[p] : max;
    }
    memset(out, 0, dim * sizeof *out);
    for (uint32_t p = first; p < end; p++) {
        w[p] = exp(w[p] - max);
        sum += w[p];
        for (uint32_t i = 0; i < dim; i++)
            out[i] += w[p] * (double)(t->s.v_dim ? t->k : t->v)[p * row + kv_head * dim + i];
    }
    if (t->s.sinks)
        sum += exp((double)sinks[head] - max);
    for (uint32_t i = 0; i < dim; i++)
        out[i] /= sum;
    mem_free(w);
}

static struct attention_params params_of(const struct sequence_kv *t, const struct kv_row *row,
                                         float *out)
{
    uint32_t n_heads = t->s.n_kv_heads * t->s.group;
    return (struct attention_params){.q = {t->q, n_heads * t->s.head_dim},
                                     .out = {out, n_heads * t->kv.v_dim},
                                     .rows = row,
                                     .n_rows = 1,
                                     .n_heads = n_heads,
                                     .group = t->s.group,
                                     .sinks = t->s.sinks ? sinks : NULL,
                                     .window = t->s.window,
                                     .scale = scale,
                                     .softcap = t->s.softcap,
                                     .kv = &t->kv};
}

static void run(const struct set *set, const struct sequence_kv *t, float *out)
{
    struct kv_row row = {t->blocks, t->n_dropped, t->s.position};
    struct attention_params p = params_of(t, &row, out);
    uint64_t n = attention_scratch_floats(t->s.group, &t->kv);
    /* The size is exact, so that a sanitizer detects a longer access. */
    float *scratch = mem_array(n, sizeof(float));
    memset(scratch, 0xff, n * sizeof(float)); /* old content must not matter */
    for (uint32_t h = 0; h < t->s.n_kv_heads; h++)
        set->attention(&p, 0, h, scratch);
    mem_free(scratch);
}

static void check_shape(const struct shape *s, struct rng *r)
{
    struct sequence_kv t;
    sequence_init(&t, s, r);
    uint32_t v_dim = t.kv.v_dim;
    size_t n_out = (size_t)s->n_kv_heads * s->group * v_dim;
    float *out = mem_array(n_out + 1, sizeof *out), *fused = mem_array(n_out, sizeof *fused);
    double *want = mem_array(s->head_dim, sizeof *want);
    for (uint32_t i_set = 0; i_set < N_SETS; i_set++) {
        const struct set *set = &sets[i_set];
        if (set->needs > cpu_isa_best())
            continue;
        out[n_out] = 77.0f;
        run(set, &t, out);
        assert_true(out[n_out] == 77.0f);
        for (uint32_t h = 0; h < s->n_kv_heads * s->group; h++) {
            plain_attention(&t, h, want);
            for (uint32_t i = 0; i < v_dim; i++) {
                /* Scores are in the tens, so e^score is off by about 1e-6, and values are at
                 * most 2. */
                double got = (double)out[(size_t)h * v_dim + i];
                if (!(fabs(got - want[i]) <= 2e-5))
                    fail_msg("%s dim %u group %u kv %u bt %u window %u pos %u cap %g dtype %u: "
                             "head %u [%u] %.8g, want %.8g",
                             set->name, s->head_dim, s->group, s->n_kv_heads, s->block_tokens,
                             s->window, s->position, (double)s->softcap, s->dtype, h, i, got,
                             want[i]);
            }
        }
        if (i_set == FUSED)
            memcpy(fused, out, n_out * sizeof *fused);
        if (set->fused)
            assert_memory_equal(out, fused, n_out * sizeof *fused);
    }
    mem_free(out);
    mem_free(fused);
    mem_free(want);
    sequence_fini(&t);
}

static void test_dims_and_groups(void **state)
{
    static const uint32_t dims[] = {8, 16, 24, 32, 40, 64, 80, 96, 128, 256};
    struct rng r = {1};
    for (uint32_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (uint32_t group = 1; group <= 9; group++) {
            struct shape s = {.n_kv_heads = 1 + group % 2,
                              .group = group,
                              .head_dim = dims[d],
                              .block_tokens = 16u << (group % 3),
                              .position = (uint32_t)rng_below(&r, 80),
                              .dtype = kv_dtypes[(d + group) % N_DTYPES]};
            check_shape(&s, &r);
        }
}

/* The cases have a latent that all heads share, and sinks with nearly all, half or none of the
 * weight. */
static void test_latents_and_sinks(void **state)
{
    static const uint32_t v_dims[] = {8, 16, 24, 40, 64};
    struct rng r = {9};
    for (uint32_t i = 0; i < sizeof v_dims / sizeof v_dims[0]; i++)
        for (uint32_t position = 0; position < 600; position += 1 + 299 * (position > 0)) {
            struct shape s = {.n_kv_heads = 1,
                              .group = 3 + i,
                              .head_dim = v_dims[i] + 8,
                              .v_dim = i % 2 ? v_dims[i] : 0,
                              .sinks = i != 1,
                              .block_tokens = 16,
                              .position = position,
                              .dtype = kv_dtypes[(i + position) % N_DTYPES]};
            check_shape(&s, &r);
        }
}

static void test_positions_windows_softcap(void **state)
{
    static const struct {
        uint32_t window, position;
    } cases[] = {{0, 0},     {0, 1},      {0, 15},     {0, 16},   {0, 255},   {0, 256},
                 {0, 257},   {0, 700},    {1, 0},      {1, 300},  {16, 15},   {16, 16},
                 {16, 17},   {32, 30},    {32, 31},    {32, 32},  {32, 33},   {512, 511},
                 {512, 512}, {512, 513},  {512, 1300}, {100, 99}, {100, 100}, {100, 101},
                 {300, 511}, {256, 1023}, {256, 1024}, {256, 510}};
    struct rng r = {2};
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t variant = 0; variant < 2; variant++) {
            struct shape s = {.n_kv_heads = 1 + variant,
                              .group = 2 + c % 3,
                              .head_dim = variant ? 24 : 32,
                              .block_tokens = variant ? 48 : 16,
                              .window = cases[c].window,
                              .position = cases[c].position,
                              .softcap = variant ? 5.0f : 0.0f,
                              .dtype = kv_dtypes[(c + 2 * variant) % N_DTYPES]};
            check_shape(&s, &r);
        }
}

/* The bits of a row do not depend on where its blocks are, how long they are, or how many
 * leading blocks are left. */
static void test_bits_do_not_depend_on_blocks(void **state)
{
    struct rng r = {3};
    struct shape s = {.n_kv_heads = 2,
                      .group = 4,
                      .head_dim = 64,
                      .block_tokens = 16,
                      .window = 600,
                      .position = 1000,
                      .dtype = DTYPE_F16};
    struct sequence_kv a, b;
    sequence_init(&a, &s, &r);
    s.block_tokens = 64;
    s.window = 0; /* window 0 keeps all blocks */
    sequence_init(&b, &s, &r);
    size_t n = (size_t)(s.position + 1) * 2 * 64;
    memcpy(b.k, a.k, n * sizeof(float));
    memcpy(b.v, a.v, n * sizeof(float));
    memcpy(b.q, a.q, 2 * 4 * 64 * sizeof(float));
    store_all(&b, &sets[0]);
    b.s.window = 600;
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (sets[k].needs > cpu_isa_best())
            continue;
        float x[512], y[512];
        run(&sets[k], &a, x);
        run(&sets[k], &b, y);
        assert_memory_equal(x, y, sizeof x);
    }
    sequence_fini(&a);
    sequence_fini(&b);
}

/* Scores differ so much that whole splits have no weight. The split with all of the weight is
 * first, in the middle and last. */
static void test_splits_far_apart(void **state)
{
    struct rng r = {4};
    for (uint32_t loud = 0; loud < 3; loud++) {
        struct shape s = {.n_kv_heads = 1,
                          .group = 1,
                          .head_dim = 16,
                          .block_tokens = 16,
                          .position = 767,
                          .dtype = DTYPE_F32};
        struct sequence_kv t;
        sequence_init(&t, &s, &r);
        for (uint32_t i = 0; i < 16; i++)
            t.q[i] = 10.0f;
        for (uint32_t p = 0; p < 768; p++)
            for (uint32_t i = 0; i < 16; i++)
                t.k[p * 16 + i] = p / 256 == loud ? 10.0f : -10.0f;
        store_all(&t, &sets[0]);
        for (uint32_t k = 0; k < N_SETS; k++) {
            if (sets[k].needs > cpu_isa_best())
                continue;
            float out[16];
            run(&sets[k], &t, out);
            for (uint32_t i = 0; i < 16; i++) {
                double want = 0; /* plain mean of the values in the split with all of the weight */
                for (uint32_t p = loud * 256; p < loud * 256 + 256; p++)
                    want += (double)t.v[p * 16 + i] / 256;
                assert_true(fabs((double)out[i] - want) < 1e-6);
            }
        }
        sequence_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dims_and_groups),
        cmocka_unit_test(test_positions_windows_softcap),
        cmocka_unit_test(test_latents_and_sinks),
        cmocka_unit_test(test_bits_do_not_depend_on_blocks),
        cmocka_unit_test(test_splits_far_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
