/* Tests matrix products of floats with weights of every data type, in every level this CPU has,
 * over odd shapes. Values are compared with a sum in double. One more level, `spec`, is the
 * scalar set with fused multiply-adds, and the vector levels must equal its bits however rows
 * and panels are cut. Invariants: rows of input and output are wider than needed, and memory
 * outside of the output is not written. */
#define VEC_SCALAR_FMA
#include "kernels/cpu/vec/scalar.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/few_impl.h"
#include "kernels/cpu/linear/linear_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/kernels/cpu/weights_fixture.h"

/* FORMAT_SPEC defines a format whose products use dequantize for any number of rows. The gemv of
 * the other levels must give the same bits. */
#define FORMAT_SPEC(dtype)                                                                         \
    FORMAT_DEQUANTIZE(dtype)                                                                       \
    static const struct format_kernels format_##dtype = {0, NULL, dequantize_##dtype};
#define ALL_FORMATS(do_)                                                                           \
    FORMATS_PLAIN(do_)                                                                             \
    FORMATS_BLOCKS(do_) FORMATS_K(do_) FORMATS_OURS(do_) FORMATS_RARE(do_)
ALL_FORMATS(FORMAT_SPEC)
static FORMAT_TABLE(formats_spec, ALL_FORMATS);
static const format_table *const spec_tables[] = {&formats_spec};

static void linear_spec(const struct linear_task *t)
{
    linear_of(format_find(spec_tables, 1, t->w->dtype), t);
}
static void embed_row_spec(const struct weight *w, uint32_t id, float scale, float *out)
{
    embed_of(format_find(spec_tables, 1, w->dtype), w, id, scale, out);
}

struct level {
    const char *name;
    void (*linear)(const struct linear_task *t);
    void (*embed_row)(const struct weight *w, uint32_t id, float scale, float *out);
};
/* `levels` holds the levels that this CPU has. `spec` is the first. */
static struct level levels[CPU_ISA_COUNT + 1];
static uint32_t n_levels;

static void find_levels(void)
{
    levels[n_levels++] = (struct level){"spec", linear_spec, embed_row_spec};
#define LEVEL(upper, lower)                                                                        \
    if (CPU_ISA_##upper <= cpu_isa_best())                                                         \
        levels[n_levels++] = (struct level){#lower, linear_##lower, embed_row_##lower};
    CPU_LEVELS(LEVEL)
}

enum { PAD = 3, MAX_ROWS = 40 };
static const float untouched = 1234.5f;

/* `product` is a matrix product. Rows of x and out are PAD wider than needed, and out has one
 * row more. */
struct product {
    struct matrix m;
    uint32_t n_rows;
    float *x, *bias, *out, *scratch;
};

static float *random_floats(struct rng *r, uint64_t n)
{
    float *x = mem_array(n, sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = random_float(r);
    return x;
}

static struct product product_new(struct rng *r, enum dtype dtype, uint32_t n, uint32_t k,
                                  uint32_t n_rows)
{
    struct product p = {.m = matrix_new(r, dtype, n, k), .n_rows = n_rows};
    p.x = random_floats(r, (uint64_t)n_rows * (k + PAD));
    p.bias = random_floats(r, n);
    p.out = mem_array((n_rows + 1ull) * (n + PAD), sizeof *p.out);
    p.scratch = mem_array(LINEAR_SCRATCH_FLOATS, sizeof *p.scratch);
    return p;
}

static void product_free(struct product *p)
{
    matrix_free(&p->m);
    mem_free(p->x);
    mem_free(p->bias);
    mem_free(p->out);
    mem_free(p->scratch);
}

static void clear_out(struct product *p)
{
    for (uint64_t i = 0; i < (p->n_rows + 1ull) * (p->m.w.n + PAD); i++)
        p->out[i] = untouched;
}

/* Computes `n_rows` rows from `first` on, and the panels from `begin` to `end` - 1. */
static void run_part(struct product *p, const struct level *level, uint32_t first, uint32_t n_rows,
                     uint32_t begin, uint32_t end)
{
    struct linear_task t = {.w = &p->m.w,
                            .bias = p->bias,
                            .x = p->x + (uint64_t)first * (p->m.w.k + PAD),
                            .out = p->out + (uint64_t)first * (p->m.w.n + PAD),
                            .n_rows = n_rows,
                            .x_stride = p->m.w.k + PAD,
                            .out_stride = p->m.w.n + PAD,
                            .panel_begin = begin,
                            .panel_end = end,
                            .next = {p->m.w.data, begin},
                            .scratch = p->scratch};
    level->linear(&t);
}

static uint32_t n_panels_of(const struct product *p)
{
    return (p->m.w.n + PANEL_N - 1) / PANEL_N;
}

static void check_values(struct product *p, const struct level *level)
{
    uint32_t n = p->m.w.n, k = p->m.w.k;
    float *w = mem_array(k, sizeof *w);
    clear_out(p);
    run_part(p, level, 0, p->n_rows, 0, n_panels_of(p));
    for (uint32_t j = 0; j < n; j++) {
        const uint8_t *row = p->m.rows.ptr + j * p->m.rows.stride_bytes;
        assert_true(dequantize_row(p->m.w.dtype, row, k, w));
        for (uint32_t i = 0; i < p->n_rows; i++) {
            double sum = p->bias ? (double)p->bias[j] : 0, size = fabs(sum);
            for (uint32_t l = 0; l < k; l++) {
                double product = (double)p->x[(uint64_t)i * (k + PAD) + l] * (double)w[l];
                sum += product;
                size += fabs(product);
            }
            double got = (double)p->out[(uint64_t)i * (n + PAD) + j];
            if (fabs(got - sum) > 1e-5 * size)
                fail_msg("%s %s n=%u k=%u: row %u output %u is %.9g, not %.9g", level->name,
                         dtype_traits(p->m.w.dtype).name, n, k, i, j, got, sum);
        }
    }
    for (uint32_t i = 0; i <= p->n_rows; i++)
        for (uint32_t j = i < p->n_rows ? n : 0; j < n + PAD; j++)
            assert_true(p->out[(uint64_t)i * (n + PAD) + j] == untouched);
    mem_free(w);
}

static uint32_t inputs_of(enum dtype dtype, uint32_t n_blocks, uint32_t n_plain)
{
    uint32_t block = dtype_traits(dtype).block_elems;
    return block == 1 ? n_plain : block * n_blocks;
}

static void test_values(void **state)
{
    static const struct {
        uint32_t n, n_blocks, k_plain, n_rows;
        bool has_bias;
    } shapes[] = {
        {1, 1, 1, 1, false},  {16, 1, 7, 2, true},     {83, 3, 300, 1, true},
        {40, 2, 64, 5, true}, {131, 1, 61, 13, false}, {17, 3, 523, 31, true},
    };
    struct rng r = {11};
    for (uint32_t i = 0; i < N_PACKED_DTYPES; i++) {
        for (uint32_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            enum dtype dtype = packed_dtypes[i];
            uint32_t k = inputs_of(dtype, shapes[j].n_blocks, shapes[j].k_plain);
            struct product p = product_new(&r, dtype, shapes[j].n, k, shapes[j].n_rows);
            if (!shapes[j].has_bias) {
                mem_free(p.bias);
                p.bias = NULL;
            }
            for (uint32_t l = 0; l < n_levels; l++)
                check_values(&p, &levels[l]);
            product_free(&p);
        }
    }
}

static void assert_same_rows(const struct product *p, const float *want, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t at = (uint64_t)i * (p->m.w.n + PAD);
        assert_memory_equal(p->out + at, want + at, p->m.w.n * sizeof *want);
    }
}

/* Repeats the product with each number of rows, each row alone, and the panels cut in two.
 * `want` is the result of all rows at once. */
static void check_cuts(struct product *p, const struct level *level, const float *want)
{
    uint32_t n_panels = n_panels_of(p);
    for (uint32_t n_rows = 1; n_rows <= p->n_rows; n_rows++) {
        clear_out(p);
        run_part(p, level, 0, n_rows, 0, n_panels);
        assert_same_rows(p, want, n_rows);
    }
    clear_out(p);
    for (uint32_t i = 0; i < p->n_rows; i++)
        run_part(p, level, i, 1, 0, n_panels);
    assert_same_rows(p, want, p->n_rows);
    for (uint32_t cut = 1; cut < n_panels; cut++) {
        clear_out(p);
        run_part(p, level, 0, p->n_rows, cut, n_panels);
        run_part(p, level, 0, 3, 0, cut);
        run_part(p, level, 3, p->n_rows - 3, 0, cut);
        assert_same_rows(p, want, p->n_rows);
    }
}

static void test_same_bits(void **state)
{
    struct rng r = {12};
    for (uint32_t i = 0; i < N_PACKED_DTYPES; i++) {
        enum dtype dtype = packed_dtypes[i];
        struct product p = product_new(&r, dtype, 119, inputs_of(dtype, 3, 539), MAX_ROWS);
        uint64_t n_bytes = (MAX_ROWS + 1ull) * (119 + PAD) * sizeof *p.out;
        float *want = mem_alloc(n_bytes), *spec = mem_alloc(n_bytes);
        clear_out(&p);
        run_part(&p, &levels[0], 0, MAX_ROWS, 0, n_panels_of(&p));
        memcpy(spec, p.out, n_bytes);
        for (uint32_t l = 1; l < n_levels; l++) {
            clear_out(&p);
            run_part(&p, &levels[l], 0, MAX_ROWS, 0, n_panels_of(&p));
            memcpy(want, p.out, n_bytes);
            if (levels[l].linear != linear_scalar)
                assert_memory_equal(want, spec, n_bytes);
            check_cuts(&p, &levels[l], want);
        }
        mem_free(want);
        mem_free(spec);
        product_free(&p);
    }
}

static void test_embed_row(void **state)
{
    struct rng r = {13};
    for (uint32_t i = 0; i < N_PACKED_DTYPES; i++) {
        enum dtype dtype = packed_dtypes[i];
        uint32_t k = inputs_of(dtype, 3, 261);
        struct matrix m = matrix_new(&r, dtype, 35, k);
        float *row = mem_array(k, sizeof *row), *spec = mem_array(k, sizeof *row),
              *out = mem_array(k + 1, sizeof *out);
        for (uint32_t id = 0; id < 35; id++) {
            assert_true(dequantize_row(dtype, m.rows.ptr + id * m.rows.stride_bytes, k, row));
            levels[0].embed_row(&m.w, id, 25.25f, spec);
            for (uint32_t l = 0; l < n_levels; l++) {
                out[k] = untouched;
                levels[l].embed_row(&m.w, id, 25.25f, out);
                assert_true(out[k] == untouched);
                /* below 256 an ulp is below 2^-15, which bounds the error */
                for (uint32_t j = 0; j < k; j++)
                    assert_true(fabsf(out[j] - 25.25f * row[j]) <= 25.25f * 0x1p-16f);
                if (levels[l].linear != linear_scalar)
                    assert_memory_equal(out, spec, k * sizeof *out);
            }
        }
        mem_free(row);
        mem_free(spec);
        mem_free(out);
        matrix_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_embed_row),
    };
    find_levels();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
