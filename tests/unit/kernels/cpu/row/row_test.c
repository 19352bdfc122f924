/* Tests operators on single rows: norm, rope, gated activations, softcap, sums of exp, the best
 * logits. Each operator runs in every level this CPU has, and in the scalar source with fused
 * multiply-adds. Values are compared with double precision, and all levels but level 0 must have
 * the same bits. Invariants: operators may work in place, and a guard value behind the output
 * stays untouched. All data are seeded random numbers. */
#define ISA scalar_fma
#define VEC_SCALAR_FMA
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/row/row.h"
ROW_DECLARE(scalar_fma);
#include "kernels/cpu/row/row_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { MAX_DIM = 5000 };

/* `set` is a level, or the scalar source with fused multiply-adds. All sets but level 0 must
 * have the same bits. */
struct set {
    const char *name;
    enum cpu_isa needs;
    bool fused;
    float (*sum_squares)(const float *, uint32_t);
    void (*norm)(float *, const float *, const float *, uint32_t, float);
    void (*rope)(float *, const float *, uint32_t, bool);
    void (*gated)(float *, const float *, const float *, uint32_t, enum activation, float);
    void (*add)(float *, const float *, uint32_t);
    void (*softcap)(float *, uint32_t, float);
    struct logits_top (*logits_top)(const float *, uint32_t);
    double (*sum_exp)(const float *, uint32_t, float);
};
#define SET(isa, needs_, fused_)                                                                   \
    {                                                                                              \
#isa, needs_, fused_, row_sum_squares_##isa, row_norm_##isa, row_rope_##isa,               \
            row_gated_##isa, row_add_##isa, row_softcap_##isa, row_logits_top_##isa,               \
            row_sum_exp_##isa                                                                      \
    }
static const struct set sets[] = {SET(scalar, CPU_ISA_SCALAR, false),
                                  SET(scalar_fma, CPU_ISA_SCALAR, true),
#define VECTOR_SET(upper, lower) SET(lower, CPU_ISA_##upper, true),
                                  CPU_VECTOR_LEVELS(VECTOR_SET)};
enum { N_SETS = sizeof sets / sizeof sets[0], FUSED = 1 };

static const uint32_t dims[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 640, 1030, 4097, MAX_DIM};
enum { N_DIMS = sizeof dims / sizeof dims[0] };

static float uniform(struct rng *r, float scale)
{
    return scale * ((float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f);
}

/* Fills in random numbers. A guard value behind them reveals a store beyond the end. */
static void fill(float *x, uint32_t n, struct rng *r, float scale)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = uniform(r, scale);
    for (uint32_t i = n; i < n + 16; i++)
        x[i] = 77.0f;
}
static void check_guard(const float *x, uint32_t n)
{
    for (uint32_t i = n; i < n + 16; i++)
        assert_true(x[i] == 77.0f);
}

static void check_close(const struct set *s, const char *what, double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol))
        fail_msg("%s %s: %.9g, want %.9g within %.3g", s->name, what, got, want, tol);
}

static bool available(const struct set *s)
{
    return s->needs <= cpu_isa_best();
}

/* `buffers` holds the input and output of the operators, with an output for each set of kernels. */
struct buffers {
    float x[MAX_DIM + 16], y[MAX_DIM + 16], w[MAX_DIM + 16], out[N_SETS][MAX_DIM + 16];
};
static struct buffers b;

static void check_same_bits(uint32_t i_set, uint32_t dim, const char *what)
{
    check_guard(b.out[i_set], dim);
    if (sets[i_set].fused && memcmp(b.out[i_set], b.out[FUSED], dim * sizeof(float)) != 0)
        fail_msg("%s %s dim %u: bits differ", sets[i_set].name, what, dim);
}

static void norm(const struct set *s, float *out, const float *x, const float *w, uint32_t dim,
                 float eps)
{
    s->norm(out, x, w, dim, s->sum_squares(x, dim) / (float)dim + eps);
}

static void test_norm(void **state)
{
    struct rng r = {1};
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t dim = dims[d];
        fill(b.x, dim, &r, 30.0f);
        fill(b.w, dim, &r, 2.0f);
        double sum = 0;
        for (uint32_t i = 0; i < dim; i++)
            sum += (double)b.x[i] * (double)b.x[i];
        double inv = 1.0 / sqrt(sum / dim + 1e-6);
        for (uint32_t k = 0; k < N_SETS; k++) {
            if (!available(&sets[k]))
                continue;
            fill(b.out[k], dim, &r, 1.0f);
            memcpy(b.out[k], b.x, dim * sizeof(float)); /* the operator works in place */
            norm(&sets[k], b.out[k], b.out[k], b.w, dim, 1e-6f);
            for (uint32_t i = 0; i < dim; i++) {
                double want = (double)b.x[i] * inv * (double)b.w[i];
                check_close(&sets[k], "norm", (double)b.out[k][i], want, 1e-6 * fabs(want));
            }
            check_same_bits(k, dim, "norm");
        }
    }
}

static void test_norm_of_zeros_uses_eps(void **state)
{
    float zero[20] = {0}, w[20], out[20];
    for (int i = 0; i < 20; i++)
        w[i] = 1.0f;
    norm(&sets[0], out, zero, w, 20, 1e-5f);
    for (int i = 0; i < 20; i++)
        assert_true(out[i] == 0.0f);
    zero[3] = 1e-3f; /* the mean square is 5e-8, so the result depends mostly on eps */
    norm(&sets[0], out, zero, w, 20, 1e-5f);
    check_close(&sets[0], "eps", (double)out[3], 1e-3 / sqrt(5e-8 + 1e-5), 1e-6);
}

static void test_rope(void **state)
{
    static const struct {
        uint32_t head_dim, n_rot;
    } cases[] = {{2, 2}, {16, 16}, {24, 10}, {64, 64}, {80, 32}, {128, 128}, {256, 64}, {96, 90}};
    struct rng r = {2};
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t inter = 0; inter < 2; inter++) {
            uint32_t n = cases[c].n_rot, dim = cases[c].head_dim;
            fill(b.x, dim, &r, 5.0f);
            for (uint32_t i = 0; i < n / 2; i++) {
                double a = (double)uniform(&r, 3.0f);
                b.w[2 * i] = (float)cos(a);
                b.w[2 * i + 1] = (float)sin(a);
            }
            for (uint32_t k = 0; k < N_SETS; k++) {
                if (!available(&sets[k]))
                    continue;
                memcpy(b.out[k], b.x, (dim + 16) * sizeof(float));
                sets[k].rope(b.out[k], b.w, n, inter);
                for (uint32_t i = 0; i < n / 2; i++) {
                    uint32_t lo = inter ? 2 * i : i, hi = inter ? 2 * i + 1 : i + n / 2;
                    double x = (double)b.x[lo], y = (double)b.x[hi];
                    double co = (double)b.w[2 * i], si = (double)b.w[2 * i + 1];
                    check_close(&sets[k], "rope", (double)b.out[k][lo], x * co - y * si, 1e-6);
                    check_close(&sets[k], "rope", (double)b.out[k][hi], y * co + x * si, 1e-6);
                }
                assert_memory_equal(b.out[k] + n, b.x + n, (dim - n) * sizeof(float));
                check_guard(b.out[k], dim);
                /* The operator has no fused operation, so all levels must agree. */
                assert_memory_equal(b.out[k], b.out[0], dim * sizeof(float));
            }
        }
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}
static double gelu_tanh(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void test_gated(void **state)
{
    struct rng r = {3};
    static const float scales[] = {0.01f, 3.0f, 12.0f, 200.0f};
    for (uint32_t d = 0; d < N_DIMS * 4; d++)
        for (uint32_t act = 0; act < ACT_COUNT; act++) {
            uint32_t dim = dims[d / 4];
            fill(b.x, dim, &r, scales[d % 4]);
            fill(b.y, dim, &r, 3.0f);
            for (uint32_t k = 0; k < N_SETS; k++) {
                if (!available(&sets[k]))
                    continue;
                fill(b.out[k], dim, &r, 1.0f);
                memcpy(b.out[k], b.x, dim * sizeof(float)); /* the output is the gate's memory */
                sets[k].gated(b.out[k], b.out[k], b.y, dim, act, 1.5f);
                for (uint32_t i = 0; i < dim; i++) {
                    double x = (double)b.x[i], y = (double)b.y[i];
                    double want = (act == ACT_SILU ? silu(x) : gelu_tanh(x)) * y;
                    if (act == ACT_SWIGLU_LIMITED) {
                        x = fmin(x, 1.5);
                        y = fmax(fmin(y, 1.5), -1.5) + 1;
                        want = silu(1.702 * x) / 1.702 * y;
                    }
                    /* Far below zero, the result is tiny, and the rounding of the exponent's
                     * argument is visible in it. */
                    double tol = 6e-7 * fabs(want) + 2e-8 * fabs(y);
                    check_close(&sets[k], "gated", (double)b.out[k][i], want, tol);
                }
                check_same_bits(k, dim, "gated");
            }
        }
}

static void test_add_and_softcap(void **state)
{
    struct rng r = {4};
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t dim = dims[d];
        fill(b.x, dim, &r, 100.0f);
        fill(b.y, dim, &r, 3.0f);
        for (uint32_t k = 0; k < N_SETS; k++) {
            if (!available(&sets[k]))
                continue;
            memcpy(b.out[k], b.x, (dim + 16) * sizeof(float));
            sets[k].add(b.out[k], b.y, dim);
            for (uint32_t i = 0; i < dim; i++)
                assert_true(b.out[k][i] == b.x[i] + b.y[i]);
            memcpy(b.out[k], b.x, (dim + 16) * sizeof(float));
            sets[k].softcap(b.out[k], dim, 30.0f);
            for (uint32_t i = 0; i < dim; i++) {
                double want = 30.0 * tanh((double)b.x[i] / 30.0);
                check_close(&sets[k], "softcap", (double)b.out[k][i], want, 4e-7 * fabs(want));
            }
            check_same_bits(k, dim, "softcap");
        }
    }
}

static void test_softcap_edges(void **state)
{
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (!available(&sets[k]))
            continue;
        float x[5] = {INFINITY, -INFINITY, NAN, 0.0f, 1e-6f};
        sets[k].softcap(x, 5, 50.0f);
        assert_true(x[0] == 50.0f && x[1] == -50.0f && isnan(x[2]) && x[3] == 0.0f);
        check_close(&sets[k], "softcap", (double)x[4], 1e-6, 4e-13);
    }
}

/* The exp of each set must have the accuracy that math_impl.h promises. It is measured by
 * sum_exp of one element. */
static void test_exp_accuracy(void **state)
{
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (!available(&sets[k]))
            continue;
        double worst = 0;
        for (double x = -86.99; x < 88.0; x += 0.0137) {
            float in = (float)x;
            double want = exp((double)in), got = sets[k].sum_exp(&in, 1, 0.0f);
            double error = fabs(got - want) / want;
            worst = error > worst ? error : worst;
        }
        /* the error is at most 1.5 ulp; 2^-23 is 1.2e-7 */
        check_close(&sets[k], "exp", worst, 0, 1.8e-7);
        static const struct {
            float in;
            double want;
        } exact[] = {{0.0f, 1.0},   {-0.0f, 1.0}, {-87.0f, 0.0},    {-88.0f, 0.0},
                     {-1e30f, 0.0}, {NAN, 0.0},   {-INFINITY, 0.0}, {1e-10f, 1.0}};
        for (uint32_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
            assert_true(sets[k].sum_exp(&exact[i].in, 1, 0.0f) == exact[i].want);
        float big = 1e30f, same = 88.0f;
        assert_true(sets[k].sum_exp(&big, 1, 0.0f) == sets[k].sum_exp(&same, 1, 0.0f));
    }
}

static void test_sum_exp(void **state)
{
    struct rng r = {5};
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t dim = dims[d];
        fill(b.x, dim, &r, 20.0f);
        b.x[dim / 2] = -INFINITY;
        double want = 0, first = 0;
        for (uint32_t i = 0; i < dim; i++)
            want += exp((double)b.x[i] - 19.5);
        for (uint32_t k = 0; k < N_SETS; k++) {
            if (!available(&sets[k]))
                continue;
            double got = sets[k].sum_exp(b.x, dim, 19.5f);
            check_close(&sets[k], "sum_exp", got, want, 2e-6 * want);
            if (k == FUSED)
                first = got;
            assert_true(!sets[k].fused || got == first);
        }
    }
}

/* Sums of blocks must be added in double. Next to e^30 a float has steps of 2^20, but the 904
 * elements in the next block must all count. */
static void test_sum_exp_totals_in_double(void **state)
{
    const uint32_t ones = 4096;
    for (uint32_t i = 0; i < MAX_DIM; i++)
        b.x[i] = i < ones ? -INFINITY : 0.0f;
    b.x[0] = 30.0f;
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (!available(&sets[k]))
            continue;
        double first = sets[k].sum_exp(b.x, ones, 0.0f), all = sets[k].sum_exp(b.x, MAX_DIM, 0.0f);
        check_close(&sets[k], "sum_exp of ones", all - first, MAX_DIM - ones, 0);
    }
}

static struct logits_top plain_top(const float *x, uint32_t dim)
{
    struct logits_top t = {0, -INFINITY, -INFINITY};
    for (uint32_t i = 0; i < dim; i++)
        if (x[i] > t.best) {
            t.second = t.best;
            t.best = x[i];
            t.id = i;
        } else if (x[i] > t.second) {
            t.second = x[i];
        }
    return t;
}

static void check_top(const float *x, uint32_t dim, const char *what)
{
    struct logits_top want = plain_top(x, dim);
    for (uint32_t k = 0; k < N_SETS; k++) {
        if (!available(&sets[k]))
            continue;
        struct logits_top got = sets[k].logits_top(x, dim);
        if (got.id != want.id || got.best != want.best || got.second != want.second)
            fail_msg("%s %s dim %u: %u %g %g, want %u %g %g", sets[k].name, what, dim, got.id,
                     (double)got.best, (double)got.second, want.id, (double)want.best,
                     (double)want.second);
    }
}

static void test_logits_top(void **state)
{
    struct rng r = {6};
    for (uint32_t d = 0; d < N_DIMS; d++)
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t dim = dims[d];
            fill(b.x, dim, &r, 20.0f);
            check_top(b.x, dim, "random");
            uint32_t at = (uint32_t)rng_below(&r, dim), too = (uint32_t)rng_below(&r, dim);
            /* The lower id of two equal values must be best, and the other value second best. */
            b.x[at] = b.x[too] = 21.0f;
            check_top(b.x, dim, "equal");
            b.x[rng_below(&r, dim)] = NAN;
            check_top(b.x, dim, "NaN");
            for (uint32_t j = 0; j < dim; j++)
                b.x[j] = j == at ? -3.0f : -INFINITY;
            check_top(b.x, dim, "one");
            for (uint32_t j = 0; j < dim; j++)
                b.x[j] = j % 2 ? NAN : -INFINITY;
            check_top(b.x, dim, "none");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_of_zeros_uses_eps),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_add_and_softcap),
        cmocka_unit_test(test_softcap_edges),
        cmocka_unit_test(test_exp_accuracy),
        cmocka_unit_test(test_sum_exp),
        cmocka_unit_test(test_sum_exp_totals_in_double),
        cmocka_unit_test(test_logits_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
