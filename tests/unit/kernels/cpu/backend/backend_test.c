/* Tests the operators of the CPU device. Each operator runs on three devices with 1, 2 and 5
 * threads, at sizes that are cut into tasks. All devices must give the bits of one thread that
 * computes row by row. Values are checked where the backend adds something to the kernels, which
 * have separate tests. Invariants: an operator writes only its output, and bits do not depend on
 * threads or on the number of rows. Rows, weights and caches are seeded random numbers. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/pack/pack.h"
#include "kernels/kv_layout.h"

enum { N_DEVICES = 3, MAX_ROWS = 70 };
static struct device *devices[N_DEVICES];

static int setup(void **state)
{
    static const uint32_t n_threads[N_DEVICES] = {1, 2, 5};
    struct error err;
    for (uint32_t i = 0; i < N_DEVICES; i++)
        assert_int_equal(cpu_device_open(&(struct cpu_device_options){.n_threads = n_threads[i],
                                                                      .isa_level = -1},
                                         &devices[i], &err),
                         STATUS_OK);
    return 0;
}
static int teardown(void **state)
{
    for (uint32_t i = 0; i < N_DEVICES; i++)
        devices[i]->ops->close(devices[i]);
    return 0;
}

static float uniform(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}
static float *random_floats(size_t n, struct rng *r)
{
    float *p = mem_array(n, sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = uniform(r);
    return p;
}
static float *copy_of(const float *from, size_t n)
{
    float *p = mem_array(n, sizeof *p);
    memcpy(p, from, n * sizeof *p);
    return p;
}

/* ---- weights ---- */

static struct weight weight_new(struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                                const uint8_t *rows, uint64_t row_bytes)
{
    struct weight w = {.dtype = dtype, .n = n, .k = k};
    w.n_bytes = d->ops->loading.weight_bytes(d, dtype, n, k, 0);
    assert_true(w.n_bytes > 0);
    w.data = d->ops->memory.alloc(d, w.n_bytes);
    assert_non_null(w.data);
    d->ops->loading.weight_pack(d, &w, &(struct weight_rows){rows, row_bytes});
    return w;
}

/* `linear_case` has three matrices over one input. All rows at once on each device must equal
 * row after row on one thread. */
struct linear_case {
    enum dtype dtype;
    uint32_t k, n[3], n_rows;
};

static void run_linear(struct device *d, const struct linear_case *c, const struct weight *w,
                       const float *x, float *out)
{
    static const float bias[4000] = {0.25f, -1.0f, 3.0f};
    uint32_t stride = c->n[0] + c->n[1] + c->n[2] + 5, at = 0;
    struct linear_params p = {.x = {(void *)(uintptr_t)x, c->k + 3}, .n_rows = c->n_rows};
    for (uint32_t i = 0; i < 3; i++) {
        if (c->n[i] == 0)
            break;
        p.parts[p.n_parts++] = (struct linear_part){
            .w = &w[i], .bias = i == 1 ? bias : NULL, .out = {out + at, stride}};
        at += c->n[i];
    }
    d->ops->math.linear(d, &p);
}

static void check_linear(const struct linear_case *c, struct rng *r)
{
    struct dtype_traits traits = dtype_traits(c->dtype);
    uint64_t row_bytes = c->k / traits.block_elems * traits.block_bytes;
    uint32_t n_out = c->n[0] + c->n[1] + c->n[2], stride = n_out + 5;
    size_t n_x = (size_t)c->n_rows * (c->k + 3), n_floats = (size_t)c->n_rows * stride;
    float *x = random_floats(n_x, r), *want = random_floats(n_floats, r);
    float *fresh = copy_of(want, n_floats), *out = mem_array(n_floats, sizeof *out),
          *row = mem_array(c->k, sizeof *row);
    struct weight w[N_DEVICES][3];
    uint8_t *raw[3];
    for (uint32_t i = 0; i < 3; i++) {
        raw[i] = mem_array(c->n[i], row_bytes);
        /* The bits are small as float16 numbers and as floats. */
        for (size_t j = 0; j < c->n[i] * row_bytes; j += 2) {
            uint16_t h = (uint16_t)((rng_next(r) & 0x83ff) | 0x3000);
            memcpy(raw[i] + j, &h, 2);
        }
    }
    for (uint32_t d = 0; d < N_DEVICES; d++)
        for (uint32_t i = 0; i < 3 && c->n[i] > 0; i++)
            w[d][i] = weight_new(devices[d], c->dtype, c->n[i], c->k, raw[i], row_bytes);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        struct linear_case one = *c;
        one.n_rows = 1;
        run_linear(devices[0], &one, w[0], x + (size_t)i * (c->k + 3), want + (size_t)i * stride);
    }
    for (uint32_t d = 0; d < N_DEVICES; d++) {
        memcpy(out, fresh, n_floats * sizeof *out);
        run_linear(devices[d], c, w[d], x, out);
        /* memory outside of the output was not written */
        assert_memory_equal(out, want, n_floats * sizeof *out);
    }
    for (uint32_t i = 0, at = 0; i < 3; at += c->n[i++])
        for (uint32_t n = 0; n < c->n[i]; n += 7) {
            assert_true(dequantize_row(c->dtype, raw[i] + n * row_bytes, c->k, row));
            double sum = i == 1 ? (n == 0 ? 0.25 : 0) : 0, size = fabs(sum);
            for (uint32_t k = 0; k < c->k; k++) {
                sum += (double)row[k] * (double)x[k];
                size += fabs((double)row[k] * (double)x[k]);
            }
            assert_true(fabs((double)want[at + n] - sum) <= 1e-5 * size);
        }
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t d = 0; d < N_DEVICES && c->n[i] > 0; d++)
            devices[d]->ops->memory.release(devices[d], w[d][i].data, w[d][i].n_bytes);
        mem_free(raw[i]);
    }
    mem_free(x);
    mem_free(want);
    mem_free(fresh);
    mem_free(out);
    mem_free(row);
}

/* Weights with an order of inputs read unsorted inputs. The result must equal the same weights
 * over inputs that were sorted before, bit for bit. A matrix without an order is in the same
 * call. */
static void test_linear_in_another_order(void **state)
{
    enum { N = 40, INPUTS = 50, K = 64, ROWS = 70 };
    struct rng r = {5};
    uint32_t order[K];
    float *x = random_floats(ROWS * INPUTS, &r), *sorted = mem_array(ROWS * K, sizeof *sorted),
          *raw = random_floats(N * K, &r), *want = mem_array(ROWS * N, sizeof *want),
          *got = mem_array(2 * ROWS * N, sizeof *got);
    for (uint32_t k = 0; k < K; k++)
        order[k] = k % 5 == 4 ? WEIGHT_NO_INPUT : (k * 7 + 3) % INPUTS;
    for (uint32_t i = 0; i < ROWS * K; i++)
        sorted[i] = order[i % K] == WEIGHT_NO_INPUT ? 0 : x[i / K * INPUTS + order[i % K]];
    for (uint32_t i = 0; i < N_DEVICES; i++) {
        struct device *d = devices[i];
        struct weight w = weight_new(d, DTYPE_F32, N, K, (const uint8_t *)raw, K * 4);
        struct weight plain = weight_new(d, DTYPE_F32, N, INPUTS, (const uint8_t *)raw, INPUTS * 4);
        d->ops->math.linear(d, &(struct linear_params){.x = {sorted, K},
                                                       .n_rows = ROWS,
                                                       .n_parts = 1,
                                                       .parts = {{.w = &w, .out = {want, N}}}});
        w.order = order;
        d->ops->math.linear(
            d, &(struct linear_params){.x = {x, INPUTS},
                                       .n_rows = ROWS,
                                       .n_parts = 2,
                                       .parts = {{.w = &plain, .out = {got + N, 2 * N}},
                                                 {.w = &w, .out = {got, 2 * N}}}});
        for (uint32_t row = 0; row < ROWS; row++)
            assert_memory_equal(got + row * 2 * N, want + row * N, N * sizeof *want);
        d->ops->math.linear(d, &(struct linear_params){.x = {x, INPUTS},
                                                       .n_rows = ROWS,
                                                       .n_parts = 1,
                                                       .parts = {{.w = &plain, .out = {want, N}}}});
        for (uint32_t row = 0; row < ROWS; row++)
            assert_memory_equal(got + row * 2 * N + N, want + row * N, N * sizeof *want);
        d->ops->memory.release(d, w.data, w.n_bytes);
        d->ops->memory.release(d, plain.data, plain.n_bytes);
    }
    mem_free(x);
    mem_free(sorted);
    mem_free(raw);
    mem_free(want);
    mem_free(got);
}

static void test_linear(void **state)
{
    static const struct linear_case cases[] = {
        {DTYPE_F32, 8, {5, 0, 0}, 1},          {DTYPE_F32, 64, {100, 17, 33}, 3},
        {DTYPE_Q8_0, 64, {2000, 300, 301}, 1}, {DTYPE_Q8_0, 320, {1000, 16, 1}, 2},
        {DTYPE_F16, 128, {515, 258, 0}, 40},   {DTYPE_Q8_0, 32, {3000, 0, 0}, 33},
        {DTYPE_F32, 4096, {40, 40, 40}, 1},
    };
    struct rng r = {1};
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_linear(&cases[i], &r);
    struct linear_params none = {.n_rows = 0};
    devices[1]->ops->math.linear(devices[1], &none);
}

static void test_weight_bytes_refuses(void **state)
{
    struct device *d = devices[0];
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_Q8_0, 10, 33, 0), 0);
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_I64, 10, 32, 0), 0);
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_F32, 0, 32, 0), 0);
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_F32, 10, 0, 0), 0);
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_F32, 10, (1u << 20) + 1, 0), 0);
    assert_int_equal(d->ops->loading.weight_bytes(d, DTYPE_F32, 17, 8, 0), 2 * 16 * 8 * 4);
    assert_true(d->ops->loading.weight_bytes(d, DTYPE_F32, UINT32_MAX, 1u << 20, 0) ==
                (uint64_t)1 << 32 << 20 << 2);
}

/* The cases have the whole embedding table, and the parts of it that ranks have. An id of
 * another rank must give a row of zeros. */
static void test_embed(void **state)
{
    enum { N = 50, K = 640, ROWS = 60 };
    static const struct {
        uint32_t first, n;
    } parts[] = {{0, N}, {0, 16}, {16, 16}, {48, 2}};
    struct rng r = {2};
    float *table = random_floats(N * K, &r), *out = mem_array(ROWS * K, sizeof *out);
    uint32_t ids[ROWS] = {UINT32_MAX, 15, 16, 31, 32, 47, 48, 49, 50};
    for (uint32_t i = 9; i < ROWS; i++)
        ids[i] = (uint32_t)rng_below(&r, N);
    for (uint32_t i = 0; i < N_DEVICES * 4; i++) {
        struct device *d = devices[i / 4];
        uint32_t first = parts[i % 4].first, n = parts[i % 4].n;
        struct weight w =
            weight_new(d, DTYPE_F32, n, K, (const uint8_t *)(table + (size_t)first * K), K * 4);
        memset(out, 0xff, ROWS * K * sizeof *out);
        d->ops->math.embed(d, &(struct embed_params){.out = {out, K},
                                                     .w = &w,
                                                     .ids = ids,
                                                     .n_rows = ROWS,
                                                     .first = first,
                                                     .scale = 2.5f});
        for (uint32_t j = 0; j < ROWS * K; j++) {
            uint32_t id = ids[j / K];
            bool here = id >= first && id < first + n;
            assert_true(out[j] == (here ? 2.5f * table[id * K + j % K] : 0.0f));
        }
        d->ops->memory.release(d, w.data, w.n_bytes);
    }
    mem_free(table);
    mem_free(out);
}

/* ---- operators on rows: device i over all rows, compared with one thread and one row at a time
 * ---- */

struct rows_case {
    uint32_t n_rows, dim, stride;
    const float *x, *y, *w;
    float *out;
};
typedef void (*rows_fn)(struct device *d, struct rows_case *c);

static void do_norm(struct device *d, struct rows_case *c)
{
    d->ops->math.norm(d, &(struct norm_params){.out = {c->out, c->stride},
                                               .x = {c->out, c->stride},
                                               .w = c->w,
                                               .n_rows = c->n_rows,
                                               .n_parts = 4,
                                               .dim = c->dim / 4,
                                               .eps = 1e-6f});
}
/* Normalises half of a vector by the squares of the whole vector. */
static void do_shared_norm(struct device *d, struct rows_case *c)
{
    float *sums = mem_array(c->n_rows, sizeof *sums);
    struct view x = {c->out, c->stride};
    d->ops->math.sum_squares(d, x, c->n_rows, c->dim, sums);
    for (uint32_t i = 0; i < c->n_rows; i++)
        sums[i] *= 2;
    d->ops->math.norm(d, &(struct norm_params){.out = x,
                                               .x = x,
                                               .w = c->w,
                                               .n_rows = c->n_rows,
                                               .n_parts = 1,
                                               .dim = c->dim,
                                               .eps = 1e-6f,
                                               .sums = sums,
                                               .whole = 2 * c->dim});
    mem_free(sums);
}
static void do_gated(struct device *d, struct rows_case *c)
{
    struct view up = {(void *)(uintptr_t)c->y, c->stride}, x = {c->out, c->stride};
    d->ops->math.gated(d, &(struct gated_params){x, up, x, c->n_rows, c->dim, ACT_GELU_TANH, 0});
}
static void do_add(struct device *d, struct rows_case *c)
{
    struct view y = {(void *)(uintptr_t)c->y, c->stride};
    d->ops->math.add(d, &(struct add_params){{c->out, c->stride}, y, c->n_rows, c->dim});
}
static void do_softcap(struct device *d, struct rows_case *c)
{
    d->ops->math.softcap(d, (struct view){c->out, c->stride}, c->n_rows, c->dim, 0.5f);
}
static void do_rope(struct device *d, struct rows_case *c)
{
    uint32_t n_rot = c->dim / 4 / 2 * 2;
    float *table = mem_array((size_t)c->n_rows * n_rot, sizeof *table);
    for (uint32_t i = 0; i < c->n_rows; i++) /* each row has other angles */
        memcpy(table + (size_t)i * n_rot, c->y + (size_t)i * c->stride, n_rot * sizeof *table);
    d->ops->math.rope(
        d, &(struct rope_params){
               {c->out, c->stride}, c->n_rows, 4, c->dim / 4, n_rot, c->dim % 8 == 0, table});
    mem_free(table);
}
/* Writes the results of the logits operators to the front of the row, as floats. */
static void do_logits(struct device *d, struct rows_case *c)
{
    struct logits_top top[MAX_ROWS];
    double sum[MAX_ROWS];
    float shift[MAX_ROWS];
    struct view x = {c->out, c->stride};
    d->ops->math.logits_top(d, x, c->n_rows, c->dim, top);
    for (uint32_t i = 0; i < c->n_rows; i++)
        shift[i] = top[i].best;
    d->ops->math.sum_exp(d, x, c->n_rows, c->dim, shift, sum);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        float *row = c->out + (size_t)i * c->stride;
        assert_true(top[i].id < c->dim && row[top[i].id] == top[i].best);
        assert_true(sum[i] >= 1 && sum[i] <= c->dim && top[i].second < top[i].best);
        row[0] = (float)top[i].id;
        row[1] = top[i].second;
        memcpy(row + 2, &sum[i], sizeof sum[i]);
    }
}

static void test_rows(void **state)
{
    static const struct {
        const char *name;
        rows_fn fn;
    } ops[] = {
        {"norm", do_norm}, {"shared norm", do_shared_norm}, {"gated", do_gated},  {"add", do_add},
        {"rope", do_rope}, {"softcap", do_softcap},         {"logits", do_logits}};
    static const struct {
        uint32_t n_rows, dim;
    } shapes[] = {{1, 8}, {1, 20000}, {2, 9004}, {7, 4096}, {MAX_ROWS, 1236}, {3, 40960}};
    struct rng r = {3};
    for (uint32_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        uint32_t dim = shapes[s].dim, stride = dim + 7, n_rows = shapes[s].n_rows;
        size_t n = (size_t)n_rows * stride;
        float *x = random_floats(n, &r), *y = random_floats(n, &r), *w = random_floats(dim, &r);
        for (uint32_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
            float *want = copy_of(x, n);
            for (uint32_t i = 0; i < n_rows; i++) {
                size_t at = (size_t)i * stride;
                ops[o].fn(devices[0],
                          &(struct rows_case){1, dim, stride, x + at, y + at, w, want + at});
            }
            /* the operator has changed the row */
            assert_true(memcmp(want, x, dim * sizeof *x) != 0);
            /* the operator has not written outside of the row */
            for (uint32_t i = 0; i < n_rows; i++)
                assert_memory_equal(want + (size_t)i * stride + dim, x + (size_t)i * stride + dim,
                                    7 * sizeof *x);
            for (uint32_t i = 0; i < N_DEVICES; i++) {
                float *out = copy_of(x, n);
                ops[o].fn(devices[i], &(struct rows_case){n_rows, dim, stride, x, y, w, out});
                if (memcmp(out, want, n * sizeof *out) != 0)
                    fail_msg("%s, device %u, %u rows of %u: bits differ", ops[o].name, i, n_rows,
                             dim);
                mem_free(out);
            }
            mem_free(want);
        }
        mem_free(x);
        mem_free(y);
        mem_free(w);
    }
}

static void test_rope_table(void **state)
{
    enum { ROWS = 64, FREQS = 64 };
    uint32_t positions[ROWS];
    float inv[FREQS], out[ROWS][FREQS][2];
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = i * i * 31; /* positions go up to 123039 */
    for (uint32_t f = 0; f < FREQS; f++)
        inv[f] = powf(10000.0f, -(float)f / FREQS);
    for (uint32_t d = 0; d < N_DEVICES; d++) {
        memset(out, 0, sizeof out);
        devices[d]->ops->math.rope_table(
            devices[d],
            &(struct rope_table_params){positions, ROWS, FREQS, inv, 1.5f, &out[0][0][0]});
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t f = 0; f < FREQS; f++) {
                float angle = (float)positions[i] * inv[f];
                assert_true(fabs((double)out[i][f][0] - 1.5 * cos((double)angle)) < 3e-7);
                assert_true(fabs((double)out[i][f][1] - 1.5 * sin((double)angle)) < 3e-7);
            }
    }
}

/* ---- attention ---- */

enum {
    SEQS = 5,
    LENGTH = 300,
    HEADS = 6,
    KV_HEADS = 2,
    GROUP = HEADS / KV_HEADS,
    DIM = 32,
    BT = 16,
    SEQ_BLOCKS = LENGTH / BT + 1,
    KV_ROW = KV_HEADS * DIM
};

/* Writes the keys and values of all positions, in one call or in several. Sequence s has every
 * SEQS-th block. */
static void fill_kv(struct device *d, const struct kv_cache *kv, const float *k, const float *v,
                    const struct kv_row *rows)
{
    struct view vk = {(void *)(uintptr_t)k, KV_ROW}, vv = {(void *)(uintptr_t)v, KV_ROW};
    d->ops->math.kv_write(d, &(struct kv_write_params){vk, vv, rows, SEQS * LENGTH, KV_HEADS, kv});
}

static void check_attention(enum dtype dtype, float near)
{
    enum { N_ROWS = SEQS * LENGTH, Q_ROW = HEADS * DIM };
    const size_t block_bytes = 2 * kv_keys_bytes(dtype, KV_HEADS, DIM, BT, false);
    const size_t cache_bytes = SEQS * SEQ_BLOCKS * block_bytes;
    struct rng r = {4};
    static uint32_t blocks[SEQS][SEQ_BLOCKS];
    static struct kv_row rows[N_ROWS];
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
            blocks[s][i] = i * SEQS + (s * 2 + i) % SEQS;
    for (uint32_t i = 0; i < N_ROWS; i++)
        rows[i] = (struct kv_row){blocks[i % SEQS], 0, i / SEQS};
    float *k = random_floats(N_ROWS * KV_ROW, &r), *v = random_floats(N_ROWS * KV_ROW, &r);
    float *q = random_floats(N_ROWS * Q_ROW, &r), *want = random_floats(N_ROWS * Q_ROW, &r);
    float *out = mem_array(N_ROWS * Q_ROW, sizeof *out);
    struct kv_cache first = {0};
    for (uint32_t i = 0; i < N_DEVICES; i++) {
        struct device *d = devices[i];
        struct kv_cache kv = {.block_stride = block_bytes,
                              .dtype = dtype,
                              .n_kv_heads = KV_HEADS,
                              .head_dim = DIM,
                              .v_dim = DIM,
                              .block_tokens = BT};
        kv_layout(&kv, d->ops->memory.alloc(d, cache_bytes), false);
        fill_kv(d, &kv, k, v, rows);
        struct attention_params p = {.q = {q, Q_ROW},
                                     .out = {out, Q_ROW},
                                     .rows = rows,
                                     .n_rows = N_ROWS,
                                     .n_heads = HEADS,
                                     .group = GROUP,
                                     .window = 100,
                                     .scale = 0.3f,
                                     .kv = &kv};
        memset(out, 0, (size_t)N_ROWS * Q_ROW * sizeof *out);
        d->ops->math.attention(d, &p);
        if (i == 0) {
            first = kv;
            for (uint32_t j = 0; j < N_ROWS; j++) {
                struct attention_params one = p;
                one.q.data = q + (size_t)j * Q_ROW;
                one.out.data = want + (size_t)j * Q_ROW;
                one.rows = &rows[j];
                one.n_rows = 1;
                d->ops->math.attention(d, &one);
            }
            /* The first token of a sequence sees only itself, so its output must be its value in
             * the cache. */
            for (uint32_t h = 0; h < HEADS; h++)
                for (uint32_t c = 0; c < DIM; c++)
                    assert_true(fabsf(want[h * DIM + c] - v[h / 3 * DIM + c]) < near);
        } else {
            assert_memory_equal(kv.k, first.k, cache_bytes);
            d->ops->memory.release(d, kv.k, cache_bytes);
        }
        assert_memory_equal(out, want, (size_t)N_ROWS * Q_ROW * sizeof *out);
    }
    devices[0]->ops->memory.release(devices[0], first.k, cache_bytes);
    mem_free(k);
    mem_free(v);
    mem_free(q);
    mem_free(want);
    mem_free(out);
}

static void test_attention(void **state)
{
    check_attention(DTYPE_F32, 1e-6f);
    check_attention(DTYPE_F16, 1e-3f);
    check_attention(DTYPE_BF16, 1e-2f);
    check_attention(DTYPE_I8, 1e-2f);
    check_attention(DTYPE_F8_E4M3, 8e-2f);
}

/* Computes heads `first` and `first` + 1 as a rank does that has only the KV heads of these two.
 * Both ends may cut the group of a KV head. */
enum { HEADS_OF_RANK = 2 };
static void attend_part(struct device *d, struct attention_params p, uint32_t first)
{
    struct kv_cache kv = *p.kv;
    size_t skip = (size_t)(first / GROUP) * BT * DIM;
    kv.k = (float *)kv.k + skip;
    kv.v = (float *)kv.v + skip;
    kv.n_kv_heads = (first + HEADS_OF_RANK - 1) / GROUP - first / GROUP + 1;
    p.kv = &kv;
    p.q.data = (float *)p.q.data + (size_t)first * DIM;
    p.out.data = (float *)p.out.data + (size_t)first * DIM;
    p.n_heads = HEADS_OF_RANK;
    p.first_in_group = first % GROUP;
    d->ops->math.attention(d, &p);
}

/* Few rows far into their sequences are cut into splits for several threads, in several rounds. */
static void test_attention_by_splits(void **state)
{
    enum { LONG = 6000, N_BLOCKS = LONG / BT, Q_ROW = HEADS * DIM, CACHE = LONG * KV_ROW };
    static const struct {
        uint32_t n_rows, window, positions[3];
    } cases[] = {{1, 0, {5999}},
                 {1, 0, {4096}},
                 {1, 4500, {5999}},
                 {2, 0, {5999, 255}},
                 {2, 5000, {2999, 5375}},
                 {3, 0, {5000, 0, 5120}},
                 {3, 2000, {100, 4000, 2047}}};
    struct rng r = {6};
    float *k = random_floats(CACHE, &r), *v = random_floats(CACHE, &r);
    float *q = random_floats(3 * Q_ROW, &r), want[3 * Q_ROW], out[3 * Q_ROW];
    struct kv_cache kv = {.k = k,
                          .v = v,
                          .block_stride = sizeof(float) * BT * KV_ROW,
                          .dtype = DTYPE_F32,
                          .n_kv_heads = KV_HEADS,
                          .head_dim = DIM,
                          .v_dim = DIM,
                          .block_tokens = BT};
    static uint32_t blocks[N_BLOCKS];
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        blocks[i] = i * 7 % N_BLOCKS;
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t i = 0; i < N_DEVICES; i++) {
            struct kv_row rows[3];
            for (uint32_t j = 0; j < 3; j++)
                rows[j] = (struct kv_row){blocks, 0, cases[c].positions[j]};
            memset(out, 0, sizeof out);
            struct attention_params p = {.q = {q, Q_ROW},
                                         .out = {out, Q_ROW},
                                         .rows = rows,
                                         .n_rows = cases[c].n_rows,
                                         .n_heads = HEADS,
                                         .group = GROUP,
                                         .window = cases[c].window,
                                         .scale = 3.0f,
                                         .kv = &kv};
            devices[i]->ops->math.attention(devices[i], &p);
            if (i == 0)
                memcpy(want, out, sizeof want);
            if (memcmp(out, want, sizeof out) != 0)
                fail_msg("case %u, device %u: bits differ", c, i);
            memset(out, 0, sizeof out);
            for (uint32_t first = 0; first < HEADS; first += HEADS_OF_RANK)
                attend_part(devices[i], p, first);
            if (memcmp(out, want, (size_t)cases[c].n_rows * Q_ROW * sizeof *out) != 0)
                fail_msg("case %u, device %u: bits of a rank's heads differ", c, i);
        }
    mem_free(k);
    mem_free(v);
    mem_free(q);
}

/* ---- the device ---- */

static void test_levels(void **state)
{
    struct device *d;
    struct error err;
    enum cpu_isa best = cpu_isa_best();
    assert_int_equal(
        cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = CPU_ISA_SCALAR},
                        &d, &err),
        STATUS_OK);
    assert_int_equal(d->ops->isa_level(d), CPU_ISA_SCALAR);
    assert_string_equal(d->ops->isa_name(d), "scalar");
    for (uint32_t level = 0; level < CPU_ISA_COUNT + 1; level++) {
        bool can = level <= (uint32_t)best;
        assert_int_equal(d->ops->set_isa_level(d, level, &err),
                         can ? STATUS_OK : STATUS_UNSUPPORTED);
        assert_int_equal(d->ops->isa_level(d), can ? level : (uint32_t)best);
        assert_string_equal(d->ops->isa_name(d), cpu_isa_name(can ? level : (uint32_t)best));
    }
    assert_int_equal(d->ops->pass.sync(d, &err), STATUS_OK);
    d->ops->close(d);
    assert_int_equal(devices[0]->ops->isa_level(devices[0]), best);
    assert_int_equal(
        cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = CPU_ISA_COUNT},
                        &d, &err),
        STATUS_UNSUPPORTED);
    assert_null(d);
    assert_int_equal(
        cpu_device_open(&(struct cpu_device_options){.n_threads = 0, .isa_level = -1}, &d, &err),
        STATUS_INVALID);
    assert_null(d);
}

static void test_alloc(void **state)
{
    static const uint64_t sizes[] = {
        0, 1, 63, 64, 65, 100000, (2 << 20) - 1, 2 << 20, (4 << 20) + 1};
    struct device *d = devices[0];
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t n = sizes[i];
        uint8_t *p = d->ops->memory.alloc(d, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n >= 2 << 20 ? 2 << 20 : 64), 0);
        for (uint64_t j = 0; j < n; j += 61)
            assert_int_equal(p[j], 0);
        memset(p, 0xff, n);
        d->ops->memory.release(d, p, n);
    }
    assert_null(d->ops->memory.alloc(d, UINT64_MAX));
    assert_null(d->ops->memory.alloc(d, UINT64_MAX / 4)); /* no machine has this much memory */
    d->ops->memory.release(d, NULL, 5);
}

static void count_one(void *ctx, uint32_t i)
{
    atomic_fetch_add(&((atomic_uint *)ctx)[i], 1);
}
static void test_parallel_for(void **state)
{
    for (uint32_t d = 0; d < N_DEVICES; d++) {
        atomic_uint n[100] = {0};
        cpu_parallel_for(devices[d], 100, count_one, n);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(atomic_load(&n[i]), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_in_another_order),
        cmocka_unit_test(test_weight_bytes_refuses),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_by_splits),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_parallel_for),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
