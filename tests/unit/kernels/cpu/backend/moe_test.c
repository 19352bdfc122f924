/* Tests mixtures of experts on the CPU device. The choice of experts is compared with cases
 * computed by hand, and the weighted sum of their outputs with plain C. Invariants: a row's bits
 * do not depend on the rows beside it, and ranks with different experts add up to the whole. The
 * device has two threads; its weights are seeded random numbers. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/cpu.h"

static struct device *device;

static int open_device(void **state)
{
    struct error err;
    const struct cpu_device_options o = {.n_threads = 2, .isa_level = -1};
    return cpu_device_open(&o, &device, &err) == STATUS_OK ? 0 : -1;
}

static int close_device(void **state)
{
    device->ops->close(device);
    return 0;
}

/* ---- choice of experts ---- */

enum { N_EXPERTS = 6 };

struct choice {
    const char *name;
    float logits[N_EXPERTS], bias[N_EXPERTS];
    struct route_params p;
    uint32_t ids[3];
    float shares[3];
};

#define LN2 0.69314718f
static const struct choice choices[] = {
    {"of all", {0, LN2, 0, 2 * LN2, 0, 0}, {0}, {.n_chosen = 2}, {1, 3}, {0.2f, 0.4f}},
    {"normalised",
     {0, LN2, 0, 2 * LN2, 0, 0},
     {0},
     {.n_chosen = 2, .normalise = true},
     {1, 3},
     {1.0f / 3, 2.0f / 3}},
    {"among equals the first",
     {1, 1, 1, 1, 1, 1},
     {0},
     {.n_chosen = 2},
     {0, 1},
     {1.0f / 6, 1.0f / 6}},
    {"of the chosen",
     {-9, LN2, 0, 2 * LN2, 0, 0},
     {0},
     {.n_chosen = 2, .scores = ROUTE_SOFTMAX_OF_CHOSEN},
     {1, 3},
     {1.0f / 3, 2.0f / 3}},
    {"the bias chooses and does not share",
     {0, 0, 0, 0, 0, 0},
     {0, 0, 5, 0, 0, 3},
     {.n_chosen = 2, .scores = ROUTE_SIGMOID},
     {2, 5},
     {0.5f, 0.5f}},
    {"the best group by its best",
     {3, 0, 2, 2, 1, 1},
     {0},
     {.n_chosen = 2, .n_groups = 3, .n_groups_chosen = 1, .scores = ROUTE_SIGMOID},
     {0, 1},
     {0.95257413f, 0.5f}},
    {"the best group by its two best",
     {3, -9, 2, 2, 1, 1},
     {0},
     {.n_chosen = 2,
      .n_groups = 3,
      .n_groups_chosen = 1,
      .groups_by_two = true,
      .scores = ROUTE_SIGMOID},
     {2, 3},
     {0.88079708f, 0.88079708f}},
};

static void choices_are_these(void **state)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        uint32_t ids[3];
        float shares[3], logits[N_EXPERTS];
        struct route_params p = choices[i].p;
        memcpy(logits, choices[i].logits, sizeof logits);
        p.logits = (struct view){logits, N_EXPERTS};
        p.bias = choices[i].bias;
        p.n_rows = 1;
        p.n_experts = N_EXPERTS;
        p.factor = 1;
        p.ids = ids;
        p.shares = shares;
        for (int factor = 1; factor <= 2; factor++) {
            p.factor = (float)factor;
            device->ops->math.route(device, &p);
            for (uint32_t k = 0; k < p.n_chosen; k++) {
                float want = choices[i].shares[k] * (float)factor;
                if (ids[k] != choices[i].ids[k] || fabsf(shares[k] - want) > 1e-6f)
                    fail_msg("%s: %u: expert %u with %g, want %u with %g", choices[i].name, k,
                             ids[k], (double)shares[k], choices[i].ids[k], (double)want);
            }
        }
    }
}

/* A damaged model may give logits that are NaN or infinite. The four chosen experts must still
 * be distinct. */
static void numbers_that_are_none_choose_each_once(void **state)
{
    static const float odd[] = {NAN, -INFINITY, INFINITY, -FLT_MAX};
    for (uint32_t i = 0; i < 4 * 3 * 2; i++) {
        uint32_t ids[N_EXPERTS];
        float shares[N_EXPERTS], logits[N_EXPERTS], bias[N_EXPERTS] = {0};
        for (uint32_t k = 0; k < N_EXPERTS; k++)
            logits[k] = k % 2 || i >= 12 ? odd[i % 4] : (float)k;
        bias[1] = odd[i % 4];
        device->ops->math.route(device, &(struct route_params){.logits = {logits, N_EXPERTS},
                                                               .bias = bias,
                                                               .n_rows = 1,
                                                               .n_experts = N_EXPERTS,
                                                               .n_chosen = 4,
                                                               .n_groups = i % 2 ? 3 : 0,
                                                               .n_groups_chosen = 2,
                                                               .scores = i / 4 % 3,
                                                               .factor = 1,
                                                               .ids = ids,
                                                               .shares = shares});
        for (uint32_t k = 0; k < 4; k++)
            assert_true(ids[k] < N_EXPERTS && (k == 0 || ids[k] > ids[k - 1]));
    }
}

/* ---- sum of the experts ---- */

enum { N_ROWS = 9, DIM = 24, INNER = 20, N_CHOSEN = 2, N_MATRICES = 3 * N_EXPERTS };

struct mixture {
    struct weight w[N_MATRICES];
    float *values[N_MATRICES]; /* each entry has the shape [n][k] */
    struct moe_expert experts[N_EXPERTS];
    float bias[INNER], x[N_ROWS][DIM], shares[N_ROWS * N_CHOSEN];
    uint32_t ids[N_ROWS * N_CHOSEN], list[N_ROWS];
    float picked[N_ROWS * DIM], gate[N_ROWS * INNER], up[N_ROWS * INNER], made[N_ROWS * DIM];
};

static float draw(struct rng *r)
{
    return (float)rng_below(r, 2001) / 1000 - 1;
}

static void mixture_init(struct mixture *m, struct rng *r)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < N_MATRICES; i++) {
        struct weight *w = &m->w[i];
        *w = (struct weight){.dtype = DTYPE_F32, .n = INNER, .k = DIM};
        if (i % 3 == 2)
            *w = (struct weight){.dtype = DTYPE_F32, .n = DIM, .k = INNER};
        m->values[i] = mem_array((size_t)w->n * w->k, sizeof(float));
        for (uint32_t j = 0; j < w->n * w->k; j++)
            m->values[i][j] = draw(r);
        w->n_bytes = device->ops->loading.weight_bytes(device, w->dtype, w->n, w->k, 0);
        w->data = device->ops->memory.alloc(device, w->n_bytes);
        device->ops->loading.weight_pack(
            device, w, &(struct weight_rows){(uint8_t *)m->values[i], w->k * sizeof(float)});
    }
    for (int e = 0; e < N_EXPERTS; e++)
        m->experts[e] = (struct moe_expert){.gate = &m->w[3 * e],
                                            .up = &m->w[3 * e + 1],
                                            .down = &m->w[3 * e + 2],
                                            .gate_bias = e % 2 ? m->bias : NULL};
    for (int i = 0; i < INNER; i++)
        m->bias[i] = draw(r);
    for (int i = 0; i < N_ROWS; i++) {
        for (int j = 0; j < DIM; j++)
            m->x[i][j] = draw(r);
        m->ids[2 * i] = (uint32_t)rng_below(r, N_EXPERTS - 1);
        m->ids[2 * i + 1] =
            m->ids[2 * i] + 1 + (uint32_t)rng_below(r, N_EXPERTS - 1 - m->ids[2 * i]);
        m->shares[2 * i] = draw(r);
        m->shares[2 * i + 1] = draw(r);
    }
}

static void mixture_fini(struct mixture *m)
{
    for (int i = 0; i < N_MATRICES; i++) {
        mem_free(m->values[i]);
        device->ops->memory.release(device, m->w[i].data, m->w[i].n_bytes);
    }
}

/* Runs rows `first` to `first + n_rows - 1` over the experts `first_expert` to `first_expert + n
 * - 1`. */
static void run(struct mixture *m, uint32_t first, uint32_t n_rows, uint32_t first_expert,
                uint32_t n, float *out)
{
    device->ops->math.moe(device, &(struct moe_params){.x = {m->x[first], DIM},
                                                       .out = {out, DIM},
                                                       .n_rows = n_rows,
                                                       .dim = DIM,
                                                       .n_chosen = N_CHOSEN,
                                                       .first = first_expert,
                                                       .n = n,
                                                       .ids = m->ids + first * N_CHOSEN,
                                                       .shares = m->shares + first * N_CHOSEN,
                                                       .experts = m->experts + first_expert,
                                                       .act = ACT_SILU,
                                                       .gathered = {m->picked, DIM},
                                                       .gate = {m->gate, INNER},
                                                       .up = {m->up, INNER},
                                                       .result = {m->made, DIM},
                                                       .list = m->list});
}

static double plain(const struct mixture *m, uint32_t i_row, uint32_t i_out)
{
    double sum = 0;
    for (uint32_t c = 0; c < N_CHOSEN; c++) {
        uint32_t e = m->ids[i_row * N_CHOSEN + c];
        double y = 0;
        for (uint32_t n = 0; n < INNER; n++) {
            double g = e % 2 ? (double)m->bias[n] : 0, u = 0;
            for (uint32_t k = 0; k < DIM; k++) {
                g += (double)m->x[i_row][k] * (double)m->values[3 * e][n * DIM + k];
                u += (double)m->x[i_row][k] * (double)m->values[3 * e + 1][n * DIM + k];
            }
            y += g / (1 + exp(-g)) * u * (double)m->values[3 * e + 2][i_out * INNER + n];
        }
        sum += y * (double)m->shares[i_row * N_CHOSEN + c];
    }
    return sum;
}

static void the_sum_is_that_of_plain_c(void **state)
{
    static struct mixture m;
    static float out[N_ROWS][DIM], one[DIM], low[N_ROWS][DIM], high[N_ROWS][DIM];
    struct rng r = {11};
    mixture_init(&m, &r);
    run(&m, 0, N_ROWS, 0, N_EXPERTS, out[0]);
    /* the runs below are those of two ranks with different experts */
    run(&m, 0, N_ROWS, 0, 2, low[0]);
    run(&m, 0, N_ROWS, 2, N_EXPERTS - 2, high[0]);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        for (uint32_t j = 0; j < DIM; j++) {
            double want = plain(&m, i, j);
            assert_true(fabs((double)out[i][j] - want) < 1e-4);
            assert_true(fabs((double)low[i][j] + (double)high[i][j] - want) < 1e-4);
        }
        run(&m, i, 1, 0, N_EXPERTS, one);
        assert_memory_equal(one, out[i], sizeof one);
    }
    mixture_fini(&m);
}

static void a_gate_scales_its_row(void **state)
{
    float x[2][3] = {{1, 2, 3}, {4, 5, 6}}, gate[2] = {0, 30};
    device->ops->math.gate_rows(device, (struct view){x, 3}, 2, 3, (struct view){gate, 1});
    assert_true(x[0][0] == 0.5f && x[0][2] == 1.5f && fabsf(x[1][1] - 5) < 1e-5f);
}

static void slices_of_heads_are_copied(void **state)
{
    float from[2][8], to[2][12] = {{0}};
    for (int i = 0; i < 16; i++)
        from[i / 8][i % 8] = (float)i;
    device->ops->math.copy_heads(device, &(struct copy_heads_params){.from = {&from[0][2], 8},
                                                                     .to = {&to[0][4], 12},
                                                                     .n_rows = 2,
                                                                     .n_heads = 2,
                                                                     .from_stride = 4,
                                                                     .to_stride = 6,
                                                                     .n = 2});
    static const float want[2][12] = {{0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 6, 7},
                                      {0, 0, 0, 0, 10, 11, 0, 0, 0, 0, 14, 15}};
    assert_memory_equal(to, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_these),
        cmocka_unit_test(numbers_that_are_none_choose_each_once),
        cmocka_unit_test(the_sum_is_that_of_plain_c),
        cmocka_unit_test(a_gate_scales_its_row),
        cmocka_unit_test(slices_of_heads_are_copied),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
