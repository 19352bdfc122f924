/* Tests a CPU device that narrows the inputs of products to codes. The test compares this device
 * with a device that uses floats. Inputs that equal their codes must give the same result on
 * both devices, apart from the rounding of floats. Cases: parts of several formats, sorted
 * inputs, more rows than are narrowed at a time, embeddings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot/dot.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

enum { K = 512, MAX_N = 100, OUT = 3 * MAX_N /* OUT: number of floats of an output row */ };
/* codes: devices that use codes, with one thread and with three */
static struct device *floats, *codes[2];

static int setup(void **state)
{
    struct cpu_device_options o = {.n_threads = 2, .isa_level = -1};
    struct error err;
    assert_int_equal(cpu_device_open(&o, &floats, &err), STATUS_OK);
    o.activations = CPU_ACTIVATIONS_NARROW;
    for (int i = 0; i < 2; i++) {
        o.n_threads = i == 0 ? 1 : 3;
        o.level_only = i == 0;
        assert_int_equal(cpu_device_open(&o, &codes[i], &err), STATUS_OK);
    }
    return 0;
}
static int teardown(void **state)
{
    floats->ops->close(floats);
    codes[0]->ops->close(codes[0]);
    codes[1]->ops->close(codes[1]);
    return 0;
}

static struct weight weight_on(struct device *d, const struct matrix *m, const uint32_t *order)
{
    struct weight w = m->w;
    w.order = order;
    w.n_bytes = d->ops->loading.weight_bytes(d, w.dtype, w.n, w.k, 0);
    assert_true(w.n_bytes > 0);
    w.data = d->ops->memory.alloc(d, w.n_bytes);
    d->ops->loading.weight_pack(d, &w, &m->rows);
    return w;
}

/* Rounds x to the values of its codes, so that a product of x is a product of codes. */
static void to_values(float *x, uint32_t n_rows)
{
    int8_t c[K];
    struct dot_group g[K / DOT_GROUP];
    const struct dot_rows one = {.n_rows = 1, .k = K, .codes = c, .groups = g};
    for (uint32_t i = 0; i < n_rows; i++, x += K) {
        dot_quantise_rows(&dot_kernels_scalar, x, K, &one, 0);
        for (uint32_t k = 0; k < K; k++)
            x[k] = g[k / DOT_GROUP].scale * (float)c[k];
    }
}

struct part {
    enum dtype dtype;
    uint32_t n;
};

static void run(struct device *d, const struct weight *w, uint32_t n_parts, uint32_t n_rows,
                float *x, const float *bias, float *out)
{
    struct linear_params p = {.x = {x, K}, .n_rows = n_rows, .n_parts = n_parts};
    for (uint32_t i = 0; i < n_parts; i++)
        p.parts[i] = (struct linear_part){
            .w = &w[i], .bias = i == 1 ? bias : NULL, .out = {out + (size_t)i * MAX_N, OUT}};
    d->ops->math.linear(d, &p);
}

struct trial {
    const struct part *parts;
    uint32_t n_parts, n_rows;
    const uint32_t *order;
    struct matrix m[3];
    float *x, *want, *got, bias[MAX_N];
};

static void run_on(struct device *d, struct trial *t, float *out)
{
    struct weight w[3];
    for (uint32_t i = 0; i < t->n_parts; i++)
        w[i] = weight_on(d, &t->m[i], t->order);
    run(d, w, t->n_parts, t->n_rows, t->x, t->bias, out);
    for (uint32_t i = 0; i < t->n_parts; i++)
        d->ops->memory.release(d, w[i].data, w[i].n_bytes);
}

static void compare(const struct trial *t, uint32_t i_part)
{
    const struct part part = t->parts[i_part];
    /* the bound is large because results are in the hundreds */
    const double bound = t->order ? 0.5 : 5e-3;
    for (uint32_t row = 0; row < t->n_rows; row++)
        for (uint32_t j = 0; j < part.n; j++) {
            uint32_t at = row * OUT + i_part * MAX_N + j;
            double got = (double)t->got[at], want = (double)t->want[at];
            if (!(fabs(got - want) <= bound))
                fail_msg("%s, row %u, output %u: %g, not %g", dtype_traits(part.dtype).name, row, j,
                         got, want);
        }
}

static void check(struct rng *r, const struct part *parts, uint32_t n_parts, uint32_t n_rows,
                  const uint32_t *order)
{
    struct trial t = {.parts = parts, .n_parts = n_parts, .n_rows = n_rows, .order = order};
    t.x = mem_array((size_t)n_rows * K, sizeof *t.x);
    t.want = mem_array((size_t)n_rows * OUT, sizeof *t.want);
    t.got = mem_array((size_t)n_rows * OUT, sizeof *t.got);
    for (uint32_t i = 0; i < n_rows * K; i++) /* steps of 2^-7 are exact in bfloat16, too */
        t.x[i] = i % DOT_GROUP == 0 ? 127 * 0x1p-7f : 0.99f * random_float(r);
    for (uint32_t i = 0; i < MAX_N; i++)
        t.bias[i] = random_float(r);
    /* only unsorted inputs become values of codes, because sorted inputs have other codes */
    if (!order)
        to_values(t.x, n_rows);
    for (uint32_t i = 0; i < n_parts; i++)
        t.m[i] = matrix_new(r, parts[i].dtype, parts[i].n, K);
    run_on(floats, &t, t.want);
    for (int l = 0; l < 2; l++) {
        for (uint32_t i = 0; i < n_rows * OUT; i++)
            t.got[i] = 1234.5f;
        run_on(codes[l], &t, t.got);
        for (uint32_t i = 0; i < n_parts; i++)
            compare(&t, i);
    }
    for (uint32_t i = 0; i < n_parts; i++)
        matrix_free(&t.m[i]);
    mem_free(t.x);
    mem_free(t.want);
    mem_free(t.got);
}

static void test_parts(void **state)
{
    static const struct part parts[][3] = {
        {{DTYPE_Q4_K, 100}, {DTYPE_Q6_K, 33}, {DTYPE_Q8_0, 17}},
        {{DTYPE_BF16, 40}, {DTYPE_Q4_0, 48}, {DTYPE_Q5_0, 1}},
        {{DTYPE_BF16, 17}, {DTYPE_F16, 48}, {DTYPE_BF16, 99}}, /* F16 uses float inputs */
        {{DTYPE_INT4, 64}, {DTYPE_INT8, 63}, {DTYPE_Q5_K, 65}},
        {{DTYPE_Q4_1, 16}, {DTYPE_Q5_1, 32}, {DTYPE_Q2_K, 40}},
    };
    static const uint32_t n_rows[] = {1, 2, 7, 13, 128, 129, 300};
    struct rng r = {31};
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (uint32_t k = 0; k < sizeof n_rows / sizeof *n_rows; k++)
            check(&r, parts[i], 3, n_rows[k], NULL);
    check(&r, parts[0], 1, 300, NULL);
    run(codes[0], NULL, 0, 0, NULL, NULL, NULL);
}

static void test_another_order(void **state)
{
    static const struct part part = {DTYPE_INT4, 40};
    struct rng r = {32};
    uint32_t order[K];
    for (uint32_t i = 0; i < K; i++)
        order[i] = i % 9 == 4 ? WEIGHT_NO_INPUT : (i * 5 + 3) % K;
    check(&r, &part, 1, 130, order);
}

static void test_embed(void **state)
{
    static const uint32_t ids[] = {0, 20, 19, 7, 21, 99};
    struct rng r = {33};
    struct matrix m = matrix_new(&r, DTYPE_Q6_K, 20, K);
    float want[6 * K], got[6 * K];
    struct device *d[2] = {floats, codes[1]};
    for (int i = 0; i < 2; i++) {
        struct weight w = weight_on(d[i], &m, NULL);
        d[i]->ops->math.embed(d[i], &(struct embed_params){.out = {i ? got : want, K},
                                                           .w = &w,
                                                           .ids = ids,
                                                           .n_rows = 6,
                                                           .first = 1,
                                                           .scale = 3});
        d[i]->ops->memory.release(d[i], w.data, w.n_bytes);
    }
    for (uint32_t i = 0; i < 6 * K; i++)
        assert_true(fabsf(want[i] - got[i]) <= 1e-6f * fabsf(want[i]));
    matrix_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_another_order),
        cmocka_unit_test(test_embed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
