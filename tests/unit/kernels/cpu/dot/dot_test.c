/* Tests products of quantised weights and narrowed inputs, in every format and every set of
 * kernels this CPU has. `spec` is the scalar set with fused multiply-adds. Codes and results of
 * all sets must equal its bits, however rows and panels are cut. Values are compared with a sum
 * in double over the codes, and over the original numbers. Invariants: sums of codes never
 * overflow, and memory outside of the output is not written. */
#define VEC_SCALAR_FMA
#include "kernels/cpu/vec/scalar.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_scalar.h"
/* this header must be included after the two headers above it */
#include "kernels/cpu/dot/dot_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cpu/dot/sets.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

static const struct dot_kernels dot_kernels_spec = {
    .name = "spec", .linear = dot_linear, .quantise = dot_quantise};

#define DTYPE_OF(name) DTYPE_##name,
static const enum dtype dtypes[] = {DOT_FORMATS(DTYPE_OF)};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes, MAX_SETS = 7, PAD = 3, MAX_ROWS = 149 };

/* `sets` holds the sets that this CPU has. `spec` is the first, and scalar the second. */
static const struct dot_kernels *sets[MAX_SETS];
static uint32_t n_sets;

static void find_sets(void)
{
    sets[n_sets++] = &dot_kernels_spec;
#define SET(set, level)                                                                            \
    if (dot_kernels_run(&dot_kernels_##set))                                                       \
        sets[n_sets++] = &dot_kernels_##set;
    DOT_SETS(SET)
}

/* Returns a matrix whose panels are packed by dot.h. */
static struct matrix dot_matrix(struct rng *r, enum dtype dtype, uint32_t n, uint32_t k)
{
    struct matrix m = matrix_new(r, dtype, n, k);
    memset(m.w.data, 0xa5, m.w.n_bytes);
    for (uint32_t i = 0; i < (n + PANEL_N - 1) / PANEL_N; i++)
        dot_pack_panel(&m.w, &m.rows, i);
    return m;
}

static struct dot_rows dot_rows_new(uint32_t n_rows, uint32_t k)
{
    uint64_t n = dot_n_places(n_rows);
    struct dot_rows x = {.n_rows = n_rows, .k = k};
    x.codes = mem_array(n * k, 1);
    x.groups = mem_array(n * (k / DOT_GROUP), sizeof *x.groups);
    memset(x.codes, 0x5a, n * k);
    memset(x.groups, 0x5a, n * (k / DOT_GROUP) * sizeof *x.groups);
    return x;
}
static void dot_rows_free(struct dot_rows *x)
{
    mem_free(x->codes);
    mem_free(x->groups);
}
static struct dot_rows dot_rows_of(const struct dot_kernels *set, const float *x, uint32_t stride,
                                   uint32_t n_rows, uint32_t k)
{
    struct dot_rows to = dot_rows_new(n_rows, k);
    for (uint32_t i = 0; i * DOT_TILE < n_rows; i++)
        dot_quantise_rows(set, x, stride, &to, i);
    return to;
}

struct product {
    struct matrix m;
    uint32_t n_rows, stride, out_stride;
    float *x, *bias, *out;
};

static struct product product_new(struct rng *r, enum dtype dtype, uint32_t n, uint32_t n_rows)
{
    uint32_t block = dtype_traits(dtype).block_elems,
             /* these inputs are more than a chunk of amx_impl.h */
        k = block == 256 ? 1280 : 32 * 43;
    struct product p = {.m = dot_matrix(r, dtype, n, k), .n_rows = n_rows, .stride = k + PAD};
    p.out_stride = n + PAD;
    p.x = mem_array((uint64_t)n_rows * p.stride, sizeof *p.x);
    for (uint64_t i = 0; i < (uint64_t)n_rows * p.stride; i++)
        p.x[i] = random_float(r) * (rng_below(r, 40) == 0 ? 50.0f : 1.0f);
    p.bias = mem_array(n, sizeof *p.bias);
    for (uint32_t i = 0; i < n; i++)
        p.bias[i] = random_float(r);
    p.out = mem_array((n_rows + 1ull) * p.out_stride, sizeof *p.out);
    return p;
}
static void product_free(struct product *p)
{
    matrix_free(&p->m);
    mem_free(p->x);
    mem_free(p->bias);
    mem_free(p->out);
}

static const float untouched = 1234.5f;
static void clear_out(struct product *p)
{
    for (uint64_t i = 0; i < (p->n_rows + 1ull) * p->out_stride; i++)
        p->out[i] = untouched;
}
static void run_part(struct product *p, const struct dot_kernels *set, uint32_t first,
                     uint32_t n_rows, uint32_t begin, uint32_t end)
{
    struct dot_rows x =
        dot_rows_of(set, p->x + (uint64_t)first * p->stride, p->stride, n_rows, p->m.w.k);
    set->linear(&(struct dot_task){.w = &p->m.w,
                                   .bias = p->bias,
                                   .x = &x,
                                   .out = p->out + (uint64_t)first * p->out_stride,
                                   .out_stride = p->out_stride,
                                   .panel_begin = begin,
                                   .panel_end = end,
                                   .next = {p->m.w.data, begin}});
    dot_rows_free(&x);
}
static uint32_t n_panels_of(const struct product *p)
{
    return (p->m.w.n + PANEL_N - 1) / PANEL_N;
}
static void assert_same_rows(const struct product *p, const float *want, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++)
        assert_memory_equal(p->out + (uint64_t)i * p->out_stride,
                            want + (uint64_t)i * p->out_stride, p->m.w.n * sizeof *want);
}

static void test_same_bits(void **state)
{
    struct rng r = {21};
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        struct product p = product_new(&r, dtypes[i], 149, MAX_ROWS);
        uint32_t n_panels = n_panels_of(&p);
        uint64_t n_bytes = (MAX_ROWS + 1ull) * p.out_stride * sizeof *p.out;
        float *spec = mem_alloc(n_bytes), *want = mem_alloc(n_bytes);
        clear_out(&p);
        run_part(&p, sets[0], 0, MAX_ROWS, 0, n_panels);
        memcpy(spec, p.out, n_bytes);
        for (uint32_t l = 1; l < n_sets; l++) {
            clear_out(&p);
            run_part(&p, sets[l], 0, MAX_ROWS, 0, n_panels);
            memcpy(want, p.out, n_bytes);
            if (sets[l] != &dot_kernels_scalar)
                assert_memory_equal(want, spec, n_bytes);
            /* The loop runs all numbers of rows of a last tile, then tiles that are computed
             * together. */
            for (uint32_t n = 1; n < MAX_ROWS; n += n < 37 ? 1 : 27) {
                clear_out(&p);
                run_part(&p, sets[l], 0, n, 0, n_panels);
                assert_same_rows(&p, want, n);
            }
            clear_out(&p);
            for (uint32_t k = 0; k < MAX_ROWS; k++)
                run_part(&p, sets[l], k, 1, 0, n_panels);
            assert_same_rows(&p, want, MAX_ROWS);
            clear_out(&p);
            run_part(&p, sets[l], 0, MAX_ROWS, 2, n_panels);
            run_part(&p, sets[l], 0, 5, 0, 2);
            run_part(&p, sets[l], 5, MAX_ROWS - 5, 0, 2);
            assert_same_rows(&p, want, MAX_ROWS);
        }
        mem_free(spec);
        mem_free(want);
        product_free(&p);
    }
}

/* Checks one row. The row must equal the product of its codes, apart from the rounding of
 * floats. It must be as near to the product of the original numbers as half a step of each code. */
static void check_row(struct product *p, const char *set, uint32_t i, const struct dot_rows *x,
                      float *w)
{
    const uint32_t k = p->m.w.k;
    for (uint32_t j = 0; j < p->m.w.n; j++) {
        assert_true(dequantize_row(p->m.w.dtype, p->m.rows.ptr + j * p->m.rows.stride_bytes, k, w));
        double coded = (double)p->bias[j], exact = coded, size = fabs(coded), bound = 0;
        for (uint32_t l = 0; l < k; l++) {
            double scale = (double)x->groups[l / DOT_GROUP].scale;
            double code = x->codes[l], value = (double)p->x[(uint64_t)i * p->stride + l];
            coded += code * scale * (double)w[l];
            exact += value * (double)w[l];
            /* In formats with minimums, the parts are larger than their sum. */
            size += 127 * scale * (fabs((double)w[l]) + 0.1);
            bound += scale * (0.5 + 1e-4) * fabs((double)w[l]);
        }
        double got = (double)p->out[(uint64_t)i * p->out_stride + j];
        if (fabs(got - coded) > 2e-6 * size)
            fail_msg("%s %s: row %u output %u is %.9g, by its codes %.9g", set,
                     dtype_traits(p->m.w.dtype).name, i, j, got, coded);
        if (fabs(got - exact) > bound + 2e-6 * size)
            fail_msg("%s %s: row %u output %u is %.9g, not %.9g (+- %g)", set,
                     dtype_traits(p->m.w.dtype).name, i, j, got, exact, bound);
    }
}

static void test_values(void **state)
{
    struct rng r = {22};
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        struct product p = product_new(&r, dtypes[i], 35, 3);
        float *w = mem_array(p.m.w.k, sizeof *w);
        for (uint32_t l = 0; l < n_sets; l++) {
            clear_out(&p);
            run_part(&p, sets[l], 0, 3, 0, n_panels_of(&p));
            for (uint32_t row = 0; row < 3; row++) {
                struct dot_rows x =
                    dot_rows_of(sets[l], p.x + (uint64_t)row * p.stride, p.stride, 1, p.m.w.k);
                check_row(&p, sets[l]->name ? sets[l]->name : "", row, &x, w);
                dot_rows_free(&x);
            }
            for (uint32_t row = 0; row <= 3; row++)
                for (uint32_t j = row < 3 ? p.m.w.n : 0; j < p.out_stride; j++)
                    assert_true(p.out[(uint64_t)row * p.out_stride + j] == untouched);
        }
        mem_free(w);
        product_free(&p);
    }
}

/* All weight codes and inputs are at the ends of their ranges, which is the worst case for a
 * 16-bit sum. */
static void test_extremes(void **state)
{
    static const uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f, 0x81};
    struct rng r = {23};
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        for (uint32_t f = 0; f < sizeof fills; f++) {
            struct product p = product_new(&r, dtypes[i], 16, 2);
            struct dtype_traits traits = dtype_traits(dtypes[i]);
            uint64_t n_bytes = (uint64_t)p.m.w.k / traits.block_elems * traits.block_bytes;
            uint8_t keep[256];
            for (uint32_t j = 0; j < 16; j++) {
                uint8_t *row = p.m.memory + 1 + j * p.m.rows.stride_bytes;
                for (uint64_t at = 0; at < n_bytes; at += traits.block_bytes) {
                    memcpy(keep, row + at, traits.block_bytes);
                    memset(row + at, fills[f], traits.block_bytes);
                    /* These bytes hold the scales of the formats. */
                    memcpy(row + at, keep, dtypes[i] == DTYPE_INT8 ? 4 : 2);
                    if (traits.block_elems == 256)
                        memcpy(row + at, keep, 4);
                    if (dtypes[i] == DTYPE_Q4_1 || dtypes[i] == DTYPE_Q5_1)
                        memcpy(row + at, keep, 4);
                    if (dtypes[i] == DTYPE_Q6_K)
                        memcpy(row + at + 208, keep + 208, 2);
                }
            }
            dot_pack_panel(&p.m.w, &p.m.rows, 0);
            for (uint32_t l = 0; l < p.m.w.k; l++) {
                p.x[l] = l % 64 < 32 ? 3.0f : -3.0f;
                p.x[p.stride + l] = l % 2 ? 3.0f : -3.0f;
            }
            float want[2 * 64];
            for (uint32_t l = 0; l < n_sets; l++) {
                clear_out(&p);
                run_part(&p, sets[l], 0, 2, 0, 1);
                if (l == 0)
                    memcpy(want, p.out, 2ull * p.out_stride * sizeof *want);
                else if (sets[l] != &dot_kernels_scalar)
                    assert_memory_equal(want, p.out, 2ull * p.out_stride * sizeof *want);
            }
            product_free(&p);
        }
    }
}

static void test_quantise(void **state)
{
    enum { K = 8 * DOT_GROUP };
    struct rng r = {24};
    float x[K];
    for (uint32_t i = 0; i < K; i++)
        x[i] = random_float(&r) * ldexpf(1, (int)rng_below(&r, 40) - 20);
    memset(x, 0, DOT_GROUP * sizeof *x);
    for (uint32_t i = 0; i < DOT_GROUP; i++) {
        x[DOT_GROUP + i] = random_float(&r) * 0x1p-130f; /* these are subnormal numbers */
        x[2 * DOT_GROUP + i] = random_float(&r) * 0x1p127f;
        x[3 * DOT_GROUP + i] = i == 5 ? 62.5f : i % 2 ? -127 : 127; /* 62.5 is a tie in rounding */
    }
    x[4 * DOT_GROUP + 7] = NAN;
    x[5 * DOT_GROUP + 31] = -INFINITY;
    struct dot_rows want = dot_rows_of(sets[0], x, K, 1, K);
    assert_true(want.groups[0].scale == 0 && want.groups[1].scale == 0);
    assert_true(want.groups[2].scale > 0 && want.groups[2].scale < INFINITY);
    assert_true(want.groups[3].scale == 1 && want.codes[3 * DOT_GROUP + 5] == 62);
    assert_true(isnan(want.groups[4].scale) && isnan(want.groups[5].scale));
    for (uint32_t g = 0; g < K / DOT_GROUP; g++) {
        int32_t half[2] = {0, 0};
        for (uint32_t i = 0; i < DOT_GROUP; i++)
            half[i / 16] -= want.codes[g * DOT_GROUP + i];
        assert_int_equal(want.groups[g].neg_half[0], half[0]);
        assert_int_equal(want.groups[g].neg_half[1], half[1]);
        assert_int_equal(want.groups[g].neg, half[0] + half[1]);
    }
    for (uint32_t l = 1; l < n_sets; l++) {
        struct dot_rows got = dot_rows_of(sets[l], x, K, 1, K);
        assert_memory_equal(got.codes, want.codes, K);
        for (uint32_t g = 0; g < K / DOT_GROUP; g++)
            if (!isnan(want.groups[g].scale))
                assert_memory_equal(&got.groups[g], &want.groups[g], sizeof *got.groups);
            else
                assert_true(isnan(got.groups[g].scale));
        dot_rows_free(&got);
    }
    dot_rows_free(&want);
}

static void test_embed_row(void **state)
{
    struct rng r = {25};
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        uint32_t k = dtype_traits(dtypes[i]).block_elems == 256 ? 512 : 96;
        struct matrix m = dot_matrix(&r, dtypes[i], 35, k);
        float row[512], out[513];
        for (uint32_t id = 0; id < 35; id++) {
            assert_true(dequantize_row(dtypes[i], m.rows.ptr + id * m.rows.stride_bytes, k, row));
            out[k] = untouched;
            dot_embed_row(&m.w, id, 25.25f, out);
            assert_true(out[k] == untouched);
            for (uint32_t j = 0; j < k; j++)
                assert_true(out[j] == 25.25f * row[j]);
        }
        matrix_free(&m);
    }
}

static void test_places(void **state)
{
    for (uint32_t n = 1; n <= 200; n++) {
        uint32_t left = n, places = 0;
        while (left > 0) {
            uint32_t tile = dot_tile_rows(left);
            assert_true(tile == 16 || tile == 8 || tile == 4 || tile == 2 || tile == 1);
            assert_true(places % 16 == 0 || left < 16);
            places += tile;
            left -= tile < left ? tile : left;
        }
        assert_int_equal(places, dot_n_places(n));
        assert_true(places >= n && places < n + 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_values),
        cmocka_unit_test(test_extremes),  cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_embed_row), cmocka_unit_test(test_places),
    };
    find_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
