/* Tests rows that attention computes together. Each row must have the same bits as when it is
 * computed alone. The tests write a cache in one of its data types, run every kernel level this
 * CPU has, and compare. Cases: groups, head sizes, windows, caps, latents, sinks, several
 * sequences, threads and splits. Invariants: neighbours and later rows never change a row, and
 * the scratch memory is exactly as large as required. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/kernels.h"
#include "kernels/kv_layout.h"

#define SET(upper, lower) &cpu_kernels_##lower,
static const struct cpu_kernels *const sets[] = {CPU_LEVELS(SET)};
static const enum dtype kv_dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
enum { N_DTYPES = sizeof kv_dtypes / sizeof *kv_dtypes };
static const float sinks[] = {3, -2, 30, 0, 1, -50, 2, 8, 0.5f, 1, 7, 2, 4, 3, 2, 1};

struct shape {
    uint32_t n_kv_heads, group, head_dim, v_dim, window, block_tokens;
    bool latent, sinks;
    float softcap;
    enum dtype dtype;
};

/* `span` names rows of some sequences. The blocks of all sequences are in one memory. */
struct span {
    uint32_t position, n_rows;
};
struct batch {
    struct shape s;
    struct kv_cache kv;
    uint8_t *memory;
    uint32_t *blocks[4], n_rows, width, out_width;
    struct kv_row *rows;
    float *q;
};

static float uniform(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-22f - 2.0f;
}

static void store_token(const struct batch *b, const struct kv_row *row, uint32_t pos,
                        struct rng *r)
{
    const struct kv_cache *kv = &b->kv;
    uint32_t bt = kv->block_tokens, dim = kv->head_dim, at = pos % bt, end = kv_part_end(kv);
    size_t elem = kv_elem_bytes(kv->dtype), block = row->blocks[pos / bt - row->n_dropped];
    float x[640];
    for (uint32_t h = 0; h < kv->n_kv_heads; h++)
        for (int values = 0; values <= !kv_is_latent(kv); values++) {
            uint8_t *to = (uint8_t *)(values ? kv->v : kv->k) + block * kv->block_stride +
                          ((size_t)h * bt + at) * dim * elem;
            float *scale = kv->k_scales ? kv_scales(kv, values, block, h) + at : NULL;
            for (uint32_t i = 0; i < dim; i++)
                x[i] = uniform(r);
            cpu_kernels_scalar.kv_store(to, kv->dtype, scale, x, end);
            if (end < dim)
                cpu_kernels_scalar.kv_store(to + end * elem, kv->dtype, scale ? scale + bt : NULL,
                                            x + end, dim - end);
        }
}

/* Fills the cache. Positions that are not written are NaN. */
static void batch_init(struct batch *b, const struct shape *s, const struct span *spans,
                       uint32_t n_spans, struct rng *r)
{
    uint32_t n_blocks = 0, next = 0;
    *b = (struct batch){.s = *s, .width = s->n_kv_heads * s->group * s->head_dim};
    for (uint32_t i = 0; i < n_spans; i++) {
        n_blocks += (spans[i].position + spans[i].n_rows) / s->block_tokens + 1;
        b->n_rows += spans[i].n_rows;
    }
    uint64_t keys = kv_keys_bytes(s->dtype, s->n_kv_heads, s->head_dim, s->block_tokens, s->latent);
    b->kv = (struct kv_cache){.block_stride = (s->latent ? 1 : 2) * keys + 64,
                              .dtype = s->dtype,
                              .n_kv_heads = s->n_kv_heads,
                              .head_dim = s->head_dim,
                              .v_dim = s->v_dim,
                              .block_tokens = s->block_tokens};
    b->out_width = s->n_kv_heads * s->group * s->v_dim;
    b->memory = mem_alloc(n_blocks * b->kv.block_stride);
    memset(b->memory, 0xff, n_blocks * b->kv.block_stride);
    kv_layout(&b->kv, b->memory, s->latent);
    b->rows = mem_array(b->n_rows, sizeof *b->rows);
    b->q = mem_array((size_t)b->n_rows * b->width, sizeof(float));
    for (size_t i = 0; i < (size_t)b->n_rows * b->width; i++)
        b->q[i] = uniform(r);
    for (uint32_t i = 0, row = 0; i < n_spans; i++) {
        uint32_t end = spans[i].position + spans[i].n_rows;
        uint32_t first =
            s->window && spans[i].position >= s->window ? spans[i].position - s->window + 1 : 0;
        uint32_t dropped = first / s->block_tokens, n = (end - 1) / s->block_tokens + 1 - dropped;
        b->blocks[i] = mem_array(n, sizeof(uint32_t));
        for (uint32_t k = 0; k < n; k++)
            b->blocks[i][n - 1 - k] = next++;
        for (uint32_t k = 0; k < spans[i].n_rows; k++)
            b->rows[row++] = (struct kv_row){b->blocks[i], dropped, spans[i].position + k};
        for (uint32_t pos = first; pos < end; pos++)
            store_token(b, &b->rows[row - 1], pos, r);
    }
}

static void batch_fini(struct batch *b)
{
    mem_free(b->memory);
    mem_free(b->rows);
    mem_free(b->q);
    for (uint32_t i = 0; i < sizeof b->blocks / sizeof *b->blocks; i++)
        mem_free(b->blocks[i]);
}

static struct attention_params params_of(const struct batch *b, float *out)
{
    return (struct attention_params){.q = {b->q, b->width},
                                     .out = {out, b->out_width},
                                     .rows = b->rows,
                                     .n_rows = b->n_rows,
                                     .n_heads = b->s.n_kv_heads * b->s.group,
                                     .group = b->s.group,
                                     .sinks = b->s.sinks ? sinks : NULL,
                                     .window = b->s.window,
                                     .scale = 0.37f,
                                     .softcap = b->s.softcap,
                                     .kv = &b->kv};
}

/* Runs attention with tiles of `per_tile` rows. 0 = each row alone, with its own kernel. The
 * scratch has exactly the required size, so that a sanitizer detects a longer access. It is full
 * of NaN. */
static void run(const struct cpu_kernels *kernels, const struct attention_params *p,
                uint32_t per_tile)
{
    uint64_t n = per_tile ? attention_rows_floats(per_tile * p->group, p->kv)
                          : attention_scratch_floats(p->group, p->kv);
    float *scratch = mem_array(n, sizeof(float));
    memset(scratch, 0xff, n * sizeof(float));
    for (uint32_t h = 0; h < attention_n_kv(p); h++)
        for (uint32_t i = 0, end; i < p->n_rows; i = end) {
            for (end = i + 1;
                 end < p->n_rows && end - i < per_tile && p->rows[end].blocks == p->rows[i].blocks;)
                end++;
            if (per_tile)
                kernels->attention_rows(p, i, end - i, h, scratch);
            else
                kernels->attention(p, i, h, scratch);
        }
    mem_free(scratch);
}

static void check(const struct shape *s, const struct span *spans, uint32_t n_spans, struct rng *r)
{
    static const uint32_t tiles[] = {1, 2, 5, 16, 32};
    struct batch b;
    batch_init(&b, s, spans, n_spans, r);
    size_t n = (size_t)b.n_rows * b.out_width;
    float *want = mem_array(n, sizeof(float)), *got = mem_array(n, sizeof(float));
    for (uint32_t k = 0; k <= (uint32_t)cpu_isa_best(); k++) {
        struct attention_params p = params_of(&b, want);
        run(sets[k], &p, 0);
        for (size_t i = 0; i < n; i++)
            assert_true(want[i] - want[i] == 0);
        p.out.data = got;
        for (uint32_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
            memset(got, 0xff, n * sizeof(float));
            run(sets[k], &p, tiles[t]);
            if (memcmp(got, want, n * sizeof(float)) != 0)
                fail_msg("%s, %u rows: dim %u, %u group %u kv %u window %u cap %g dtype %u",
                         sets[k]->isa, tiles[t], s->head_dim, s->v_dim, s->group, s->n_kv_heads,
                         s->window, (double)s->softcap, s->dtype);
        }
    }
    mem_free(want);
    mem_free(got);
    batch_fini(&b);
}

static const uint32_t groups[] = {1, 3, 8};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* The spans are from the beginning of a sequence, across the end of a split, and a single row. */
static void test_dtypes_groups_dims(void **state)
{
    static const uint32_t dims[] = {8, 24, 64, 80, 256};
    static const struct span spans[] = {{0, 37}, {240, 33}, {300, 1}};
    struct rng r = {1};
    for (uint32_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (uint32_t g = 0; g < N_GROUPS; g++)
            for (uint32_t k = 0; k < N_DTYPES; k++) {
                if ((d + g + k) % 2 == 1 && dims[d] != 64)
                    continue;
                struct shape s = {.n_kv_heads = 1 + d % 2,
                                  .group = groups[g],
                                  .head_dim = dims[d],
                                  .v_dim = dims[d],
                                  .block_tokens = 16u << d % 2,
                                  .dtype = kv_dtypes[k]};
                check(&s, spans, 3, &r);
            }
}

/* The windows begin within a split, at its ends, and within the first block that is left. */
static void test_windows_and_caps(void **state)
{
    static const uint32_t windows[] = {1, 7, 16, 33, 100, 256, 257, 300};
    static const struct span spans[] = {{0, 40}, {248, 17}, {495, 40}, {700, 2}};
    struct rng r = {2};
    for (uint32_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (uint32_t variant = 0; variant < 2; variant++) {
            struct shape s = {.n_kv_heads = 1,
                              .group = groups[(w + variant) % N_GROUPS],
                              .head_dim = 32,
                              .v_dim = 32,
                              .window = windows[w],
                              .block_tokens = variant ? 48 : 16,
                              .sinks = variant == 1,
                              .softcap = variant ? 0.0f : 5.0f,
                              .dtype = kv_dtypes[(w + 3 * variant) % N_DTYPES]};
            check(&s, spans, 4, &r);
        }
}

static void test_latents(void **state)
{
    static const uint32_t v_dims[] = {8, 24, 40, 64};
    static const struct span spans[] = {{3, 9}, {250, 20}};
    struct rng r = {3};
    for (uint32_t d = 0; d < sizeof v_dims / sizeof *v_dims; d++)
        for (uint32_t k = 0; k < N_DTYPES; k++) {
            struct shape s = {.n_kv_heads = 1,
                              .group = 3 + 5 * (d % 2),
                              .head_dim = v_dims[d] + 8 + 16 * (d % 2),
                              .v_dim = v_dims[d],
                              .latent = true,
                              .block_tokens = 16,
                              .dtype = kv_dtypes[k]};
            check(&s, spans, 2, &r);
        }
}

/* A rejected draft token may leave any numbers behind a row. In this test, the numbers are NaN,
 * at the place of the tile's last row. */
static void test_later_rows_do_not_matter(void **state)
{
    static const struct span span = {260, 20};
    struct rng r = {4};
    struct shape s = {.n_kv_heads = 1,
                      .group = 3,
                      .head_dim = 64,
                      .v_dim = 64,
                      .block_tokens = 16,
                      .dtype = DTYPE_F16};
    struct batch b;
    batch_init(&b, &s, &span, 1, &r);
    uint32_t last = span.position + span.n_rows - 1;
    for (int values = 0; values < 2; values++)
        memset((uint8_t *)(values ? b.kv.v : b.kv.k) + b.blocks[0][last / 16] * b.kv.block_stride +
                   last % 16 * (size_t)64 * 2,
               0xff, 64 * 2);
    size_t n = (size_t)b.n_rows * b.out_width;
    float *want = mem_array(n, sizeof(float)), *got = mem_array(n, sizeof(float));
    for (uint32_t k = 0; k <= (uint32_t)cpu_isa_best(); k++) {
        struct attention_params p = params_of(&b, want);
        run(sets[k], &p, 0);
        p.out.data = got;
        run(sets[k], &p, 32);
        assert_memory_equal(got, want, (n - b.out_width) * sizeof(float));
    }
    mem_free(want);
    mem_free(got);
    batch_fini(&b);
}

/* Runs on a device with one thread and with several. A rank's heads may begin within a group. */
static void test_batches(void **state)
{
    static const struct span spans[] = {{2000, 3}, {0, 50}, {900, 1}, {130, 70}};
    struct rng r = {5};
    for (uint32_t variant = 0; variant < 6; variant++) {
        struct shape s = {.n_kv_heads = 2,
                          .group = groups[variant % N_GROUPS],
                          .head_dim = 64,
                          .v_dim = 64,
                          .window = variant < 3 ? 0 : 200,
                          .block_tokens = 16,
                          .dtype = kv_dtypes[variant % N_DTYPES]};
        struct batch b;
        batch_init(&b, &s, spans, 4, &r);
        size_t n = (size_t)b.n_rows * b.out_width;
        float *want = mem_array(n, sizeof(float)), *got = mem_array(n, sizeof(float));
        for (uint32_t level = 0; level <= (uint32_t)cpu_isa_best(); level++)
            for (uint32_t few = 0, n_threads = 1; few < 4; few++, n_threads = 1 + 3 * (few % 2)) {
                struct attention_params p = params_of(&b, want);
                if (few >= 2) /* the rows are cut into splits, if there are threads for them */
                    p.n_rows = 3;
                if (variant % 2 == 1 && s.group > 1) {
                    p.first_in_group = 1;
                    p.n_heads -= 2;
                }
                memset(want, 0, n * sizeof(float));
                memset(got, 0, n * sizeof(float));
                run(sets[level], &p, 0);
                p.out.data = got;
                struct device *d;
                struct error err;
                assert_int_equal(
                    cpu_device_open(&(struct cpu_device_options){.n_threads = n_threads,
                                                                 .isa_level = (int32_t)level},
                                    &d, &err),
                    STATUS_OK);
                d->ops->math.attention(d, &p);
                d->ops->close(d);
                assert_memory_equal(got, want, n * sizeof(float));
            }
        mem_free(want);
        mem_free(got);
        batch_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes_groups_dims),
        cmocka_unit_test(test_windows_and_caps),
        cmocka_unit_test(test_latents),
        cmocka_unit_test(test_later_rows_do_not_matter),
        cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
