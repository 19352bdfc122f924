/* Tests dummy weights, which come from no file: small numbers in each format, equal for each cut
 * of a matrix. `cox plan` also works without files. Its figures for a model must equal those of
 * a worker that reads the files. */
#include "worker/weights/dummy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "tests/unit/worker/tiny_model.c"
#include "worker/engine/engine.h"
#include "worker/plan/plan.h"

enum { N = 100, K = 192 };

static struct device *device;

static int open_device(void **state)
{
    struct error err;
    const struct cpu_device_options o = {.n_threads = 2, .isa_level = 0};
    return cpu_device_open(&o, &device, &err) == STATUS_OK ? 0 : -1;
}

static int close_device(void **state)
{
    device->ops->close(device);
    return 0;
}

struct matrix {
    struct model_config config;
    struct program program;
    struct op_weight weights[2]; /* [1] is under test; [0] is the embedding */
};

static void matrix_init(struct matrix *m, enum quant_method method, enum dtype stored)
{
    *m = (struct matrix){.config = {.format = MODEL_HF,
                                    .quant = {.method = method, .bits = 4},
                                    .stored_dtype = stored}};
    m->program =
        (struct program){.config = &m->config, .pp = 1, .weights = m->weights, .n_weights = 2};
    m->weights[1] = (struct op_weight){.name = {"layers.%u.up.weight", NULL},
                                       .layer = 3,
                                       .n = N,
                                       .k = K,
                                       .n_experts = 1,
                                       .part = {.of_experts = method == QUANT_MXFP4}};
}

/* Returns the rows of the cut as floats, [n_len][k_len]. */
static float *rows_of(struct matrix *m, struct cut_range n, struct cut_range k, enum dtype want)
{
    struct op_weight *x = &m->weights[1];
    struct source s;
    struct error err;
    uint32_t ids[N];
    x->n0 = n.first;
    x->n_len = n.n;
    x->k0 = k.first;
    x->k_len = k.n;
    if (dummy_find(&m->program, x, &s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(s.dtype, want);
    uint64_t n_bytes = device->ops->loading.weight_bytes(device, s.dtype, n.n, k.n, 0);
    x->w = (struct weight){.dtype = s.dtype,
                           .n = n.n,
                           .k = k.n,
                           .n_bytes = n_bytes,
                           .data = device->ops->memory.alloc(device, n_bytes)};
    assert_int_equal(dummy_pack(device, x, &s, &err), STATUS_OK);
    float *out = mem_array((size_t)n.n * k.n, sizeof *out);
    for (uint32_t i = 0; i < n.n; i++)
        ids[i] = i;
    device->ops->math.embed(
        device, &(struct embed_params){
                    .out = {out, k.n}, .w = &x->w, .ids = ids, .n_rows = n.n, .scale = 1});
    device->ops->memory.release(device, x->w.data, n_bytes);
    return out;
}

static const struct {
    const char *name;
    enum quant_method method;
    enum dtype stored, want;
} formats[] = {
    {"f32", QUANT_NONE, DTYPE_F32, DTYPE_F32},       {"f16", QUANT_NONE, DTYPE_F16, DTYPE_F16},
    {"bf16", QUANT_NONE, DTYPE_BF16, DTYPE_BF16},    {"awq", QUANT_AWQ, DTYPE_F16, DTYPE_INT4},
    {"gptq", QUANT_GPTQ, DTYPE_F16, DTYPE_INT4},     {"fp8", QUANT_FP8, DTYPE_BF16, DTYPE_FP8},
    {"mxfp4", QUANT_MXFP4, DTYPE_BF16, DTYPE_MXFP4},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static void test_small_numbers(void **state)
{
    for (size_t f = 0; f < N_FORMATS; f++) {
        struct matrix m;
        matrix_init(&m, formats[f].method, formats[f].stored);
        float *all =
            rows_of(&m, (struct cut_range){0, N}, (struct cut_range){0, K}, formats[f].want);
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < N * K; i++) {
            if (!(fabsf(all[i]) < 0.2f))
                fail_msg("%s: %g at %u", formats[f].name, (double)all[i], i);
            sum += (double)all[i];
            squares += (double)all[i] * (double)all[i];
        }
        double mean = sum / (N * K), deviation = sqrt(squares / (N * K));
        if (!(deviation > 1e-3 && fabs(mean) < deviation / 4))
            fail_msg("%s: mean %g, deviation %g", formats[f].name, mean, deviation);
        mem_free(all);
    }
}

static void test_any_cut_is_the_same_model(void **state)
{
    static const struct cut_range outputs[] = {{0, N}, {16, 50}, {96, 4}};
    static const struct cut_range inputs[] = {{0, K}, {64, 128}, {160, 32}};
    for (size_t f = 0; f < N_FORMATS; f++) {
        struct matrix m;
        matrix_init(&m, formats[f].method, formats[f].stored);
        float *all = rows_of(&m, outputs[0], inputs[0], formats[f].want);
        for (int c = 1; c < 3; c++) {
            struct cut_range n = outputs[c], k = inputs[c];
            float *part = rows_of(&m, n, k, formats[f].want);
            for (uint32_t i = 0; i < n.n; i++)
                assert_memory_equal(part + (size_t)i * k.n,
                                    all + (size_t)(n.first + i) * K + k.first, k.n * sizeof(float));
            mem_free(part);
        }
        m.weights[1].layer++;
        float *other = rows_of(&m, outputs[0], inputs[0], formats[f].want);
        assert_memory_not_equal(other, all, sizeof(float) * N * K);
        mem_free(other);
        mem_free(all);
    }
}

/* Unquantised weights are cut between panels of 16, here in the middle of one of our blocks. */
static void test_a_cut_between_blocks(void **state)
{
    struct matrix m;
    matrix_init(&m, QUANT_NONE, DTYPE_BF16);
    float *all = rows_of(&m, (struct cut_range){0, N}, (struct cut_range){0, K}, DTYPE_BF16);
    float *part = rows_of(&m, (struct cut_range){3, 20}, (struct cut_range){48, 80}, DTYPE_BF16);
    for (uint32_t i = 0; i < 20; i++)
        assert_memory_equal(part + (size_t)i * 80, all + (size_t)(3 + i) * K + 48,
                            80 * sizeof(float));
    mem_free(part);
    mem_free(all);
}

static void test_what_stays_plain(void **state)
{
    struct matrix m;
    struct source s;
    struct error err;
    matrix_init(&m, QUANT_AWQ, DTYPE_F16);
    struct op_weight *x = &m.weights[1];
    x->n_len = N;
    x->k_len = K;
    x->out = REG_ROUTER;
    assert_int_equal(dummy_find(&m.program, x, &s, &err), STATUS_OK);
    assert_int_equal(s.dtype, DTYPE_F16);
    x->out = REG_H;
    x->k0 = 16;
    assert_int_equal(dummy_find(&m.program, x, &s, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layers.3.up.weight"));
    matrix_init(&m, QUANT_NONE, DTYPE_OPAQUE);
    assert_int_equal(dummy_find(&m.program, x, &s, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "torch_dtype"));
}

/* ---- plans ---- */

static void test_a_plan_is_what_files_make(void **state)
{
    char folder[] = "/tmp/cox-dummy-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    tiny_window_model_write(folder, 1);
    struct plan_options o = {.worker = {.tp = 2, .pp = 1, .block_size = 16},
                             .memory_bytes = 1 << 28};
    struct error err = {0};
    struct plan p;
    /* the figures are computed with files, then without files */
    for (int files = 1; files >= 0; files--) {
        assert_int_equal(plan_make(folder, &o, &p, &err), STATUS_OK);
        assert_true(plan_fits(&p) && p.n_ranks == 2 && p.ranks[1].rank == 1);
        for (uint32_t r = 0; r < 2 && files; r++) {
            struct engine_setup s = {
                .model = folder, .tp = 2, .rank = r, .device = device, .block_tokens = 16};
            struct engine *e;
            assert_int_equal(engine_measure(&s, &e, &err), STATUS_OK);
            assert_int_equal(engine_size_kv(e, &(struct engine_beside){0}, 1 << 28, &err),
                             STATUS_OK);
            assert_int_equal(p.ranks[r].weights_bytes, e->weights_bytes);
            assert_int_equal(p.ranks[r].kv_bytes, e->kv_bytes);
            assert_int_equal(p.ranks[r].n_kv_groups, 2);
            for (int g = 0; g < 2; g++)
                assert_int_equal(p.ranks[r].kv_groups[g].n_blocks, e->kv_groups[g].n_blocks);
            assert_true(p.ranks[r].most_blocks[0] > e->kv_groups[0].n_blocks);
            engine_close(e);
        }
        plan_fini(&p);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        assert_int_equal(unlink(path), files ? 0 : -1);
    }
    o.memory_bytes = 96 << 20;
    assert_int_equal(plan_make(folder, &o, &p, &err), STATUS_OK);
    assert_true(p.ranks[0].fits);
    plan_fini(&p);
    o.memory_bytes = 64 << 20; /* 64 MiB is not enough beside the process itself */
    assert_int_equal(plan_make(folder, &o, &p, &err), STATUS_OK);
    assert_true(!p.ranks[0].fits && strstr(p.ranks[0].reason.text, "are free"));
    assert_int_equal(p.ranks[0].kv_groups[0].bytes_per_block, 1024);
    plan_fini(&p);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_numbers),
        cmocka_unit_test(test_any_cut_is_the_same_model),
        cmocka_unit_test(test_a_cut_between_blocks),
        cmocka_unit_test(test_what_stays_plain),
        cmocka_unit_test(test_a_plan_is_what_files_make),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
