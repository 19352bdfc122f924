/* Tests the best outputs of a product, which are found without the product itself. These outputs
 * must equal the results of linear, softcap and logits_top bit for bit, on each level, with one
 * thread and several, with float and narrowed inputs. Cases: equal outputs far apart, NaN rows,
 * sorted inputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops.h"

enum { MOST_ROWS = 300 };

struct top_case {
    enum dtype dtype;
    uint32_t n, k, n_rows;
    float softcap;
    bool in_another_order;
};
static const struct top_case cases[] = {
    {DTYPE_F32, 5, 8, 1, 0, false},        {DTYPE_F32, 100, 64, 3, 2, true},
    {DTYPE_F32, 1700, 40, 150, 0, false},  {DTYPE_Q8_0, 40007, 64, 1, 0, false},
    {DTYPE_Q8_0, 9000, 64, 16, 3, false},  {DTYPE_Q8_0, 3001, 320, MOST_ROWS, 0, false},
    {DTYPE_BF16, 20000, 32, 2, 0, false},  {DTYPE_BF16, 2000, 129, 130, 1.5f, false},
    {DTYPE_Q4_0, 12345, 32, 33, 0, false}, {DTYPE_Q6_K, 600, 256, 64, 30, false},
    {DTYPE_F16, 777, 100, 20, 0, true},    {DTYPE_F32, 16, 16, 129, 0, false},
};

struct product {
    struct weight w;
    uint32_t *order;
    float *x, *logits;
};

static struct product product_new(struct device *d, const struct top_case *c, struct rng *r)
{
    const struct dtype_traits t = dtype_traits(c->dtype);
    const uint64_t row_bytes = c->k / t.block_elems * t.block_bytes;
    uint8_t *raw = mem_array(c->n, row_bytes);
    /* The bits are small as float16 numbers and as floats. */
    for (uint64_t i = 0; i < c->n * row_bytes; i += 2) {
        uint16_t h = (uint16_t)((rng_next(r) & 0x83ff) | 0x3000);
        memcpy(raw + i, &h, i + 2 <= c->n * row_bytes ? 2 : 1);
    }
    for (uint32_t i = 0; i < 40; i++) /* some of the outputs are equal */
        memmove(raw + rng_below(r, c->n) * row_bytes, raw + rng_below(r, c->n) * row_bytes,
                rng_below(r, 2) ? row_bytes : 0);
    struct product p = {.w = {.dtype = c->dtype, .n = c->n, .k = c->k}};
    p.w.n_bytes = d->ops->loading.weight_bytes(d, c->dtype, c->n, c->k, 0);
    p.w.data = d->ops->memory.alloc(d, p.w.n_bytes);
    assert_non_null(p.w.data);
    d->ops->loading.weight_pack(d, &p.w, &(struct weight_rows){raw, row_bytes});
    mem_free(raw);
    p.order = mem_array(c->k, sizeof *p.order);
    for (uint32_t i = 0; i < c->k; i++)
        p.order[i] = c->k - 1 - i;
    p.w.order = c->in_another_order ? p.order : NULL;
    p.x = mem_array((size_t)c->n_rows * c->k, sizeof *p.x);
    for (size_t i = 0; i < (size_t)c->n_rows * c->k; i++)
        p.x[i] = (float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
    for (uint32_t i = 0; i < c->k; i++) { /* one row is NaN, and one is zeros with equal outputs */
        p.x[(size_t)(c->n_rows / 2) * c->k + i] = c->n_rows > 2 ? NAN : 1;
        p.x[(size_t)(c->n_rows - 1) * c->k + i] = c->n_rows > 1 ? 0 : 1;
    }
    p.logits = mem_array((size_t)c->n_rows * c->n, sizeof *p.logits);
    return p;
}

static void product_free(struct device *d, struct product *p)
{
    d->ops->memory.release(d, p->w.data, p->w.n_bytes);
    mem_free(p->order);
    mem_free(p->x);
    mem_free(p->logits);
}

static void check_case(struct device *d, const struct top_case *c)
{
    struct rng r = {c->n};
    struct product p = product_new(d, c, &r);
    struct logits_top want[MOST_ROWS], got[MOST_ROWS + 1];
    const struct view logits = {p.logits, c->n};
    struct linear_params l = {.x = {p.x, c->k}, .n_rows = c->n_rows, .n_parts = 1};
    l.parts[0] = (struct linear_part){.w = &p.w, .out = logits, .to_float = true};
    d->ops->math.linear(d, &l);
    if (c->softcap > 0)
        d->ops->math.softcap(d, logits, c->n_rows, c->n, c->softcap);
    d->ops->math.logits_top(d, logits, c->n_rows, c->n, want);
    l.parts[0].out = (struct view){0};
    memset(got, 0x5a, sizeof got);
    const struct logits_top untouched = got[c->n_rows];
    d->ops->math.linear_top(d, &l, c->softcap, got);
    for (uint32_t i = 0; i < c->n_rows; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%u x %u of dtype %d, row %u: %u (%g, %g), not %u (%g, %g)", c->n, c->k,
                     (int)c->dtype, i, got[i].id, (double)got[i].best, (double)got[i].second,
                     want[i].id, (double)want[i].best, (double)want[i].second);
    assert_memory_equal(&got[c->n_rows], &untouched, sizeof untouched);
    l.n_rows = 0;
    d->ops->math.linear_top(d, &l, c->softcap, got);
    assert_memory_equal(got, want, c->n_rows * sizeof *got);
    product_free(d, &p);
}

static void check_level(int32_t isa, uint32_t n_threads, enum cpu_activations activations)
{
    struct device *d;
    struct error err;
    assert_int_equal(cpu_device_open(&(struct cpu_device_options){.n_threads = n_threads,
                                                                  .isa_level = isa,
                                                                  .activations = activations},
                                     &d, &err),
                     STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(d, &cases[i]);
    d->ops->close(d);
}

static void test_as_if_looked_at(void **state)
{
    for (int32_t isa = CPU_ISA_SCALAR; isa <= (int32_t)cpu_isa_best(); isa++)
        for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
            check_level(isa, n_threads, CPU_ACTIVATIONS_F32);
            check_level(isa, n_threads, CPU_ACTIVATIONS_NARROW);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_if_looked_at)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
