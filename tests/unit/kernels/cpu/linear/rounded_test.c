/* Tests products of bfloat16 weights with inputs rounded to bfloat16, in every set of kernels
 * this CPU has. Each set must equal the bits of `spec`, the scalar set with fused multiply-adds,
 * however rows and panels are cut. Further tests have sums written out by hand, subnormal
 * numbers, infinities and NaN. Invariants: subnormal numbers count as zero, and a call does not
 * change the caller's floating-point mode. */
#define VEC_SCALAR_FMA
#include "kernels/cpu/vec/scalar.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/few_impl.h"
#include "kernels/cpu/linear/linear_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cpu/linear/rounded.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

FORMAT_DEQUANTIZE(BF16)
static void linear_spec(const struct linear_task *t)
{
    static const struct format_kernels format = {0, NULL, dequantize_BF16};
    linear_of(&format, t);
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds x to the nearest bfloat16, and a tie to the even neighbour, by the distances to both
 * neighbours. */
static float round_one(float x)
{
    const uint32_t bits = bits_of(x), sign = bits & 0x80000000u, down = bits & 0x7fff0000u;
    if (isnan(x))
        return float_of(bits | 0x00400000u);
    if (isinf(x) || (bits & 0x7f800000u) == 0)
        return float_of(isinf(x) ? bits : sign);
    const uint32_t rest = bits & 0xffffu;
    const bool is_up = rest > 0x8000u || (rest == 0x8000u && (down & 0x10000u));
    return float_of(sign | (down + (is_up ? 0x10000u : 0)));
}
static void round_spec(float *to, const float *x, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        to[i] = float_of(bits_of(round_one(x[i])) & 0xffff0000u);
}

static const struct rounded_kernels spec = {
    .name = "spec", .linear = linear_spec, .round = round_spec};

enum { MAX_SETS = 6, PAD = 3, MAX_ROWS = 40 };
/* `sets` holds the sets that this CPU has. `spec` is the first, and scalar the second. */
static const struct rounded_kernels *sets[MAX_SETS];
static uint32_t n_sets;

static void find_sets(void)
{
    sets[n_sets++] = &spec;
#define SET(set, level)                                                                            \
    if (rounded_kernels_run(&rounded_kernels_##set))                                               \
        sets[n_sets++] = &rounded_kernels_##set;
    ROUNDED_SETS(SET)
}

struct product {
    struct matrix m;
    uint32_t n_rows;
    float *x, *bias, *out, *scratch;
};

static struct product product_new(struct rng *r, uint32_t n, uint32_t k, uint32_t n_rows)
{
    struct product p = {.m = matrix_new(r, DTYPE_BF16, n, k), .n_rows = n_rows};
    p.x = mem_array((uint64_t)n_rows * (k + PAD), sizeof *p.x);
    for (uint64_t i = 0; i < (uint64_t)n_rows * (k + PAD); i++)
        p.x[i] = random_float(r);
    p.bias = mem_array(n, sizeof *p.bias);
    for (uint32_t i = 0; i < n; i++)
        p.bias[i] = random_float(r);
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

static const float untouched = 1234.5f;
static void clear_out(struct product *p)
{
    for (uint64_t i = 0; i < (p->n_rows + 1ull) * (p->m.w.n + PAD); i++)
        p->out[i] = untouched;
}
static uint32_t n_panels_of(const struct product *p)
{
    return (p->m.w.n + PANEL_N - 1) / PANEL_N;
}

/* Computes `n_rows` rows from `first` on, and the panels from `begin` to `end` - 1. The memory
 * behind a row is NaN. */
static void run_part(struct product *p, const struct rounded_kernels *set, uint32_t first,
                     uint32_t n_rows, uint32_t begin, uint32_t end)
{
    const uint32_t k = p->m.w.k, stride = rounded_stride(set, k);
    float *rows = mem_array((uint64_t)n_rows * stride, sizeof *rows);
    memset(rows, 0xff, (uint64_t)n_rows * stride * sizeof *rows);
    for (uint32_t i = 0; i < n_rows; i++)
        set->round(rows + (uint64_t)i * stride, p->x + (uint64_t)(first + i) * (k + PAD), k);
    rounded_linear(set, &(struct linear_task){
                            .w = &p->m.w,
                            .bias = p->bias,
                            .x = rows,
                            .out = p->out + (uint64_t)first * (p->m.w.n + PAD),
                            .n_rows = n_rows,
                            .x_stride = stride,
                            .out_stride = p->m.w.n + PAD,
                            .panel_begin = begin,
                            .panel_end = end,
                            .next = {p->m.w.data, begin},
                            .scratch = p->scratch,
                        });
    mem_free(rows);
}

static void assert_same_rows(const struct product *p, const float *want, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        const uint64_t at = (uint64_t)i * (p->m.w.n + PAD);
        assert_memory_equal(p->out + at, want + at, p->m.w.n * sizeof *want);
    }
}

/* Repeats the product with each number of rows, each row alone, and the panels cut in two.
 * `want` is the result of all rows. */
static void check_cuts(struct product *p, const struct rounded_kernels *set, const float *want)
{
    const uint32_t n_panels = n_panels_of(p);
    for (uint32_t n = 1; n <= p->n_rows; n++) {
        clear_out(p);
        run_part(p, set, 0, n, 0, n_panels);
        assert_same_rows(p, want, n);
    }
    clear_out(p);
    for (uint32_t i = 0; i < p->n_rows; i++)
        run_part(p, set, i, 1, 0, n_panels);
    assert_same_rows(p, want, p->n_rows);
    for (uint32_t cut = 1; cut < n_panels; cut++) {
        clear_out(p);
        run_part(p, set, 0, p->n_rows, cut, n_panels);
        run_part(p, set, 0, p->n_rows / 3, 0, cut);
        run_part(p, set, p->n_rows / 3, p->n_rows - p->n_rows / 3, 0, cut);
        assert_same_rows(p, want, p->n_rows);
    }
}

static void test_same_bits(void **state)
{
    static const struct {
        uint32_t n, k, n_rows;
        bool has_bias;
    } shapes[] = {{1, 1, 1, true},      {16, 2, 3, false},           {83, 301, MAX_ROWS, true},
                  {40, 64, 13, false},  {119, 1538, MAX_ROWS, true}, {33, 2051, 29, true},
                  {130, 95, 16, false}, {64, 1024, 9, true}};
    struct rng r = {41};
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct product p = product_new(&r, shapes[i].n, shapes[i].k, shapes[i].n_rows);
        if (!shapes[i].has_bias) {
            mem_free(p.bias);
            p.bias = NULL;
        }
        const uint64_t n_bytes = (p.n_rows + 1ull) * (p.m.w.n + PAD) * sizeof *p.out;
        float *want = mem_alloc(n_bytes);
        clear_out(&p);
        run_part(&p, &spec, 0, p.n_rows, 0, n_panels_of(&p));
        memcpy(want, p.out, n_bytes);
        for (uint32_t l = 1; l < n_sets; l++) {
            clear_out(&p);
            run_part(&p, sets[l], 0, p.n_rows, 0, n_panels_of(&p));
            assert_memory_equal(p.out, want, n_bytes); /* no memory outside the output is written */
            check_cuts(&p, sets[l], want);
        }
        mem_free(want);
        product_free(&p);
    }
}

/* Returns one output of one row. */
static float sum_of(const struct rounded_kernels *set, const float *w, const float *x, uint32_t k,
                    float bias)
{
    uint8_t file[2 * 8], data[2 * 8 * PANEL_N];
    float row[64], out[PANEL_N], scratch[LINEAR_SCRATCH_FLOATS];
    struct weight weight = {.dtype = DTYPE_BF16, .n = 1, .k = k, .data = data};
    for (uint32_t i = 0; i < k; i++)
        memcpy(file + 2 * (size_t)i, (const uint8_t *)&w[i] + 2, 2);
    pack_panel(&weight, &(struct weight_rows){file, 2 * (uint64_t)k}, 0);
    set->round(row, x, k);
    rounded_linear(set, &(struct linear_task){.w = &weight,
                                              .bias = &bias,
                                              .x = row,
                                              .out = out,
                                              .n_rows = 1,
                                              .x_stride = rounded_stride(set, k),
                                              .out_stride = 1,
                                              .panel_end = 1,
                                              .scratch = scratch});
    return out[0];
}

/* The scalar set rounds each product, so it may differ where `loses` is set. */
static void test_sums(void **state)
{
    static const struct {
        float w[5], x[5];
        uint32_t k;
        float bias, want;
        bool loses;
    } cases[] = {
        /* the products are added in order, and each sum is rounded */
        {{1, 1, -1}, {1, 0x1p24f, 0x1p24f}, 3, 0, 0, false},
        {{1, 1, -1}, {0x1p24f, 1, 0x1p24f}, 3, 0, 0, false},
        {{1, -1, 1}, {0x1p24f, 0x1p24f, 1}, 3, 0, 1, false},
        {{1, 1, 1, -1}, {1, 0x1p24f, 1, 0x1p24f}, 4, 0, 0, false},
        {{1, 1, 1, 1}, {0x1p24f, 1, 1, 1}, 4, 0, 0x1p24f, false},
        {{1, 1, 1}, {0x1p24f, 0x1.8p0f, 0}, 3, 0, 0x1.000002p24f, false},
        {{1}, {0x1.01p0f}, 1, 0, 1, false}, /* a tie rounds to the even number */
        {{1}, {0x1.03p0f}, 1, 0, 0x1.04p0f, false},
        {{1}, {0x1.010002p0f}, 1, 0, 0x1.02p0f, false},
        /* the product is the smallest normal number */
        {{0x1p-70f}, {0x1p-56f}, 1, 0, 0x1p-126f, false},
        {{0x1p-70f}, {0x1p-57f}, 1, 0, 0, false},
        {{-0x1p-70f}, {0x1p-57f}, 1, -0.0f, -0.0f, true},
        {{0x1p-127f}, {0x1p100f}, 1, 0, 0, false}, /* a subnormal weight is zero */
        {{0x1p100f}, {-0x1p-127f}, 1, 0, 0, false},
        /* the input is subnormal and would round up to a normal number */
        {{0x1p20f}, {0x1.fffp-127f}, 1, 0, 0, false},
        {{0x1p-63f, -0x1p-63f}, {0x1.8p-63f, 0x1p-63f}, 2, 0, 0, false},
        {{0x1p-63f, -0x1p-63f, 1}, {0x1.8p-63f, 0x1p-63f, 0x1p-126f}, 3, 0, 0x1p-126f, false},
        {{0x1p-63f, 0x1p-75f}, {0x1p-63f, 0x1p-75f}, 2, 0, 0x1p-126f, false},
        {{0x1p-63f, 0x1p-75f}, {0x1p-63f, 0x1p-74f}, 2, 0, 0x1.000002p-126f, true},
        {{1}, {0x1p-100f}, 1, 0x1p-127f, 0x1p-100f, false}, /* a subnormal bias is zero */
        {{-1}, {0x1.8p-126f}, 1, 0x1p-126f, -0.0f, false},
        {{-0x1p70f, 0x1p70f}, {0x1p50f, 0x1p70f}, 2, 0, INFINITY, false},
        {{0x1p100f, -0x1p100f}, {0x1p27f, 0x1p28f}, 2, 0, -0x1p127f, true},
        {{-1, 1}, {INFINITY, 1}, 2, 0, -INFINITY, false},
        {{1, 1}, {0x1.ffp127f, 0}, 2, 0, INFINITY, false}, /* the input rounds to infinity */
        {{1, 1, 2}, {INFINITY, -INFINITY, 3}, 3, 0, NAN, false},
        {{0, 1, 2}, {INFINITY, 1, 3}, 3, 0, NAN, false},
        {{1, 1, 2}, {1, 1, NAN}, 3, 0, NAN, false},
        {{1, NAN, 2}, {1, 0, 1}, 3, 0, NAN, false},
        {{1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}, 5, 0.5f, 15.5f, false},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t l = 0; l < n_sets; l++) {
            const float want = cases[i].want,
                        got = sum_of(sets[l], cases[i].w, cases[i].x, cases[i].k, cases[i].bias);
            if (sets[l] == &rounded_kernels_scalar && cases[i].loses)
                continue;
            if (isnan(want) ? !isnan(got) : bits_of(got) != bits_of(want))
                fail_msg("case %u, set %u (%s): %a, not %a", i, l,
                         sets[l]->name ? sets[l]->name : "a level", (double)got, (double)want);
        }
}

/* The cases are products and sums around the smallest normal number. */
static void test_small_numbers(void **state)
{
    struct rng r = {42};
    struct product p = product_new(&r, 33, 67, MAX_ROWS);
    for (int size = -75; size <= -55; size++) {
        for (uint32_t i = 0; i < p.m.w.n; i++)
            for (uint32_t k = 0; k < p.m.w.k; k++) {
                const float w = ldexpf(random_float(&r), size + (int)rng_below(&r, 8));
                memcpy(p.m.memory + 1 + i * p.m.rows.stride_bytes + 2 * (size_t)k,
                       (const uint8_t *)&w + 2, 2);
            }
        for (uint32_t i = 0; i < n_panels_of(&p); i++)
            pack_panel(&p.m.w, &p.m.rows, i);
        for (uint32_t i = 0; i < MAX_ROWS * (p.m.w.k + PAD); i++)
            p.x[i] = ldexpf(random_float(&r), -63 + (int)rng_below(&r, 8));
        for (uint32_t i = 0; i < p.m.w.n; i++)
            p.bias[i] = ldexpf(random_float(&r), -126);
        const uint64_t n_bytes = (p.n_rows + 1ull) * (p.m.w.n + PAD) * sizeof *p.out;
        float *want = mem_alloc(n_bytes);
        clear_out(&p);
        run_part(&p, &spec, 0, MAX_ROWS, 0, n_panels_of(&p));
        memcpy(want, p.out, n_bytes);
        for (uint32_t l = 1; l < n_sets; l++) {
            if (sets[l] == &rounded_kernels_scalar)
                continue;
            clear_out(&p);
            run_part(&p, sets[l], 0, MAX_ROWS, 0, n_panels_of(&p));
            assert_memory_equal(p.out, want, n_bytes);
        }
        mem_free(want);
    }
    product_free(&p);
}

/* Returns number k of a rounded row. */
static float rounded_at(const struct rounded_kernels *set, const float *row, uint32_t k)
{
    if (!set->in_pairs)
        return row[k];
    const uint32_t word = bits_of(row[k / 2]);
    return float_of(k % 2 ? word << 16 : word & 0xffff0000u);
}

static void test_round(void **state)
{
    static const uint32_t some[] = {0,          0x80000000, 1,          0x807fffff, 0x00800000,
                                    0x007fffff, 0x80800001, 0x3f808000, 0x3f818000, 0x3f808001,
                                    0x3f807fff, 0xbf818000, 0x7f7fffff, 0xff7f8000, 0x7f7f7fff,
                                    0x7f800000, 0xff800000, 0x7f800001, 0xffc12345, 0x7fffffff};
    enum { N_SOME = sizeof some / sizeof *some, K = 1003 };
    struct rng r = {43};
    float x[K], row[2048];
    for (uint32_t i = 0; i < K; i++)
        x[i] = float_of(i < N_SOME ? some[i] : (uint32_t)rng_next(&r));
    for (uint32_t l = 0; l < n_sets; l++)
        for (uint32_t k = 1; k <= K; k += k < 70 ? 1 : 311) {
            memset(row, 0x5a, sizeof row);
            sets[l]->round(row, x, k);
            for (uint32_t i = 0; i < k; i++)
                assert_int_equal(bits_of(rounded_at(sets[l], row, i)),
                                 bits_of(round_one(x[i])) & 0xffff0000u);
            if (sets[l]->in_pairs && k % 2 == 1)
                assert_int_equal(bits_of(row[k / 2]) & 0xffffu, 0);
            assert_true(rounded_stride(sets[l], k) >= (sets[l]->in_pairs ? (k + 1) / 2 : k));
        }
}

/* A row of an embedding must have the bits of the file, subnormal numbers included. */
static void test_embed(void **state)
{
    enum { N = 35, K = 301 };
    static const struct format_kernels format = {0, NULL, dequantize_BF16};
    struct rng r = {44};
    struct matrix m = matrix_new(&r, DTYPE_BF16, N, K);
    float want[K], got[K];
    m.memory[1 + 7 * 2] = 1; /* this weight is in row 0 */
    m.memory[1 + 7 * 2 + 1] = 0x80;
    pack_panel(&m.w, &m.rows, 0);
    for (uint32_t id = 0; id < N; id++) {
        assert_true(dequantize_row(DTYPE_BF16, m.rows.ptr + id * m.rows.stride_bytes, K, want));
        embed_of(&format, &m.w, id, 1, got);
        assert_memory_equal(got, want, sizeof want);
    }
    matrix_free(&m);
}

/* A product must not change the floating-point mode that the caller has set. */
static void test_system_of_sums(void **state)
{
    volatile float small = 0x1p-126f;
    const float w = 1, x = 1;
    for (uint32_t l = 0; l < n_sets; l++) {
        assert_true(sum_of(sets[l], &w, &x, 1, 0) == 1);
        assert_true(bits_of(small / 4) == 0x00200000);
    }
}

static void test_names(void **state)
{
    for (uint32_t l = 0; l < CPU_ISA_COUNT; l++)
        assert_null(rounded_kernels_of((enum cpu_isa)l, true)->name);
    for (uint32_t l = 1; l < n_sets; l++)
        assert_true(rounded_kernels_run(sets[l]));
    assert_false(rounded_kernels_run(&spec));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_sums),
        cmocka_unit_test(test_small_numbers), cmocka_unit_test(test_round),
        cmocka_unit_test(test_embed),         cmocka_unit_test(test_system_of_sums),
        cmocka_unit_test(test_names),
    };
    find_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
