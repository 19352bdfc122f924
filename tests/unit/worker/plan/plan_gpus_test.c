/* Tests GPUs and machines by the names that people use, and the roofline of a decode step. The
 * tests look names up (`gpus_find_machine` and others), and compute steps of a
 * 13-billion-parameter shape on an A100 by hand from the formula in roofline.h. Other tests size
 * sequences with windows. Invariants: an unknown name is refused with the nearest known ones.
 * All data are constants; all tests run on one thread. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "worker/plan/fit.h"
#include "worker/plan/roofline.h"

/* ---- names ---- */

static void test_gpus_by_name(void **state)
{
    static const struct {
        const char *name, *want; /* name to look up, and expected GPU; NULL = unknown */
        uint32_t n;
    } cases[] = {
        {"A10G", "A10G", 8},
        {"a10g", "A10G", 8},
        {"NVIDIA A10G", "A10G", 8},
        {"4xL40S", "L40S", 4},
        {"16XH200", "H200", 16},
        {"A100-40", "A100-40", 8},
        {"A100-SXM4-40GB", "A100-40", 8},
        {"NVIDIA A100-SXM4-80GB", "A100-80", 8},
        {"a100_80gb", "A100-80", 8},
        {"NVIDIA H100 80GB HBM3", "H100", 8},
        {"NVIDIA H100 PCIe", "H100-PCIE", 8},
        {"H100 NVL", "H100-NVL", 8},
        {"nvidia-h200", "H200", 8},
        {"B200", "B200", 8},
        {"Tesla V100-SXM2-16GB", "V100-16", 8},
        {"Tesla T4", "T4", 8},
        {"A100", NULL, 0}, /* the memory size is missing in this name */
        {"V100", NULL, 0},
        {"", NULL, 0},
        {"4x", NULL, 0},
        {"65xT4", NULL, 0},
        {"99999xT4", NULL, 0},
        {"123456xT4", NULL, 0},
        {"x", NULL, 0},
        {"999999999999999999999999999999999999999999999999999999999999999999999999999", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_target t;
        struct error err = {0};
        enum status s = gpus_find(str_from(cases[i].name), &t, &err);
        if ((s == STATUS_OK) != (cases[i].want != NULL))
            fail_msg("%s: %s", cases[i].name, s == STATUS_OK ? t.gpu->name : err.text);
        if (s == STATUS_OK && strcmp(t.gpu->name, cases[i].want) != 0)
            fail_msg("%s: %s", cases[i].name, t.gpu->name);
        if (s == STATUS_OK)
            assert_int_equal(t.n_gpus, cases[i].n);
        else
            assert_non_null(strstr(err.text, "--gpu"));
    }
}

static void test_machines_by_name(void **state)
{
    static const struct {
        const char *name, *gpu; /* name to look up, and expected GPU; NULL = unknown */
        uint32_t n;
        double gib; /* memory of a GPU, by the manufacturer's data sheet */
    } cases[] = {
        {"ml.g5.4xlarge", "A10G", 1, 24},
        {"g5.12xlarge", "A10G", 4, 24},
        {"ml.g5.48xl", "A10G", 8, 24},
        {"g6.4xl", "L4", 1, 24},
        {"ml.g6.12xlarge", "L4", 4, 24},
        {"g6.48xlarge", "L4", 8, 24},
        {"g6e.12xlarge", "L40S", 4, 48},
        {"ml.p4d.24xlarge", "A100-40", 8, 40},
        {"p4d", "A100-40", 8, 40},
        {"ml.p4de.24xlarge", "A100-80", 8, 80},
        {"p5.48xlarge", "H100", 8, 80},
        {"ml.p5e.48xlarge", "H200", 8, 141},
        {"p6-b200.48xlarge", "B200", 8, 180},
        {"g4dn.12xlarge", "T4", 4, 16},
        {"p3.16xlarge", "V100-16", 8, 16},
        {"p3dn.24xlarge", "V100-32", 8, 32},
        {"a2-highgpu-4g", "A100-40", 4, 40},
        {"A3-HighGPU-8g", "H100", 8, 80},
        {"Standard_ND96isr_H100_v5", "H100", 8, 80},
        {"Standard_NC24ads_A100_v4", "A100-80", 1, 80},
        {"g5.3xlarge", NULL, 0, 0},
        {"m5.large", NULL, 0, 0},
        {"", NULL, 0, 0},
        {"ml.", NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_target t;
        struct error err = {0};
        enum status s = gpus_find_machine(str_from(cases[i].name), &t, &err);
        if ((s == STATUS_OK) != (cases[i].gpu != NULL))
            fail_msg("%s: %s", cases[i].name, s == STATUS_OK ? t.gpu->name : err.text);
        if (s != STATUS_OK) {
            assert_non_null(strstr(err.text, "similar names: "));
            continue;
        }
        assert_string_equal(t.gpu->name, cases[i].gpu);
        assert_int_equal(t.n_gpus, cases[i].n);
        double gib = (double)t.gpu->memory_bytes / (1 << 30);
        if (gib > cases[i].gib || gib < 0.93 * cases[i].gib)
            fail_msg("%s: %.2f GiB of %.0f", cases[i].name, gib, cases[i].gib);
    }
}

static void test_the_nearest_are_named(void **state)
{
    static const struct {
        const char *name, *want[3];
        bool is_machine;
    } cases[] = {{"A100", {"A100-40", "A100-80"}, false},
                 {"L4OS", {"L40S"}, false},
                 {"H20", {"H200"}, false},
                 /* this name is near to no GPU, so all are listed */
                 {"RTX 4090", {"A10G", "B200", "T4"}, false},
                 {"g5.13xlarge", {"g5.12xlarge"}, true},
                 {"ml.p5d.48xlarge", {"p5.48xlarge"}, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_target t;
        struct error err = {0};
        enum status s = cases[i].is_machine ? gpus_find_machine(str_from(cases[i].name), &t, &err)
                                            : gpus_find(str_from(cases[i].name), &t, &err);
        assert_int_equal(s, STATUS_NOT_FOUND);
        for (size_t k = 0; k < 3 && cases[i].want[k]; k++)
            if (!strstr(err.text, cases[i].want[k]))
                fail_msg("%s: %s is not in: %s", cases[i].name, cases[i].want[k], err.text);
    }
}

/* ---- the roofline ---- */

static const struct gpu_model a100 = {.name = "A100-80",
                                      .memory_bytes = 80ull << 30,
                                      .bytes_per_s = 2039e9,
                                      .flops = 312e12,
                                      .link_bytes_per_s = 300e9};

/* Returns the figures of a model of 13 billion parameters on one of `tp` ranks. */
static struct shape_rank rank_13b(uint32_t tp)
{
    return (struct shape_rank){.tp = tp,
                               .n_kv_groups = 1,
                               .weights_bytes = 26000000000ull / tp,
                               .kv = {{.bytes_per_token = 819200 / tp}}};
}

static struct shape shape_13b(void)
{
    return (struct shape){.counts = {.n_params = 13e9,
                                     .n_read = 13e9,
                                     .n_layers = 40,
                                     .hidden = 5120,
                                     .n_heads = 40,
                                     .head_dim = 128}};
}

static void assert_near(double got, double want)
{
    if (fabs(got / want - 1) > 1e-3)
        fail_msg("%g, not %g", got, want);
}

/* The expected figures are computed by hand with the formula in roofline.h. */
static void test_what_bounds_a_step(void **state)
{
    struct shape s = shape_13b();
    struct shape_rank one = rank_13b(1), two = rank_13b(2);
    const struct roofline_on on = {&a100, &s, &one}, on_two = {&a100, &s, &two};
    struct roofline r = roofline_decode(&on, 4, 1024);
    assert_near(r.memory_s, (26e9 + 4 * 1024 * 819200.) / 2039e9);
    assert_near(r.compute_s, 4 * (2 * 13e9 + 4. * 1024 * 5120 * 40) / 312e12);
    assert_near(r.step_s, 14.397e-3);
    assert_true(r.links_s == 0 && r.bound == ROOFLINE_MEMORY);

    /* Two ranks take half of the memory time, and make 80 all-reduces of 40960 bytes. */
    r = roofline_decode(&on_two, 4, 1024);
    assert_near(r.memory_s, 14.397e-3 / 2);
    assert_near(r.links_s, 80 * (10e-6 + 40960 / 300e9));
    assert_near(r.step_s, r.memory_s + r.links_s);

    r = roofline_prefill(&on, 1024);
    assert_near(r.compute_s, 1024 * (2 * 13e9 + 4. * 512 * 5120 * 40) / 312e12);
    assert_true(r.bound == ROOFLINE_COMPUTE && r.step_s == r.compute_s);
    assert_true(roofline_prefill(&on, 1).bound == ROOFLINE_MEMORY);

    const struct gpu_model slow_links = {
        .bytes_per_s = 8000e9, .flops = 2250e12, .link_bytes_per_s = 1e9};
    const struct roofline_on apart = {&slow_links, &s, &two};
    assert_true(roofline_prefill(&apart, 1024).bound == ROOFLINE_LINKS);
}

/* A token uses 4 of 64 experts. One token reads a sixteenth of the experts' weights, and many
 * tokens read all weights. */
static void test_a_mixture_reads_what_it_meets(void **state)
{
    struct shape s = shape_13b();
    struct shape_rank r = rank_13b(1);
    r.kv[0].bytes_per_token = 0;
    s.counts.n_read = 1e9;
    s.counts.n_of_experts = 12e9;
    s.counts.chosen = 4. / 64;
    const struct roofline_on on = {&a100, &s, &r};
    assert_near(roofline_decode(&on, 1, 1).memory_s, 2 * (1e9 + 12e9 / 16) / 2039e9);
    assert_near(roofline_decode(&on, 2, 1).memory_s,
                2 * (1e9 + 12e9 * (1 - 15. / 16 * 15 / 16)) / 2039e9);
    assert_near(roofline_decode(&on, 4096, 1).memory_s, 26e9 / 2039e9);
    assert_near(roofline_decode(&on, 1, 1).compute_s * 312e12,
                2 * (1e9 + 12e9 / 16) + 4. * 5120 * 40);
}

/* ---- windows ---- */

static void test_layers_with_a_window(void **state)
{
    const struct shape_rank r = {.n_kv_groups = 2,
                                 .kv = {{.bytes_per_token = 10}, {512, .bytes_per_token = 100}}};
    /* A window needs 512 tokens, and another 512 for the step's own tokens. */
    assert_int_equal(fit_sequence_bytes(&r, 100, 16), 112 * 110);
    assert_int_equal(fit_sequence_bytes(&r, 1024, 16), 1024 * 110);
    assert_int_equal(fit_sequence_bytes(&r, 4096, 16), 4096 * 10 + 1024 * 100);
    const struct fit_ask ask = {.memory_bytes = 1024 * 100 + 8192 * 10,
                                .utilization = 1,
                                .batch = 1,
                                .max_model_len = 4096,
                                .most_model_len = 1 << 20,
                                .block_tokens = 16};
    struct fit f;
    fit_rank(&r, &ask, &f);
    assert_true(f.fits);
    assert_int_equal(f.max_batch, 1);
    assert_int_equal(f.max_context, 8192);
    struct fit_ask shorter = ask;
    shorter.most_model_len = 5000; /* 5000 is not a multiple of the block size */
    fit_rank(&r, &shorter, &f);
    assert_int_equal(f.max_context, 5000);
    struct fit_ask huge = ask;
    huge.batch = UINT64_MAX;
    fit_rank(&r, &huge, &f);
    assert_true(!f.fits && f.max_context == 0);
}

static void test_a_rank_without_a_kv_cache(void **state)
{
    struct shape_rank r = {.tp = 1, .weights_bytes = 1 << 20};
    const struct fit_ask ask = {.memory_bytes = 1ull << 30,
                                .utilization = 0.9,
                                .batch = 4,
                                .max_model_len = 1024,
                                .most_model_len = 4096,
                                .block_tokens = 16};
    struct fit f;
    fit_rank(&r, &ask, &f);
    assert_true(f.fits);
    assert_int_equal(f.kv_bytes, 0);
    assert_int_equal(f.max_batch, 4);
    assert_int_equal(f.kv_tokens, 4096);
    assert_int_equal(f.max_context, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_by_name),
        cmocka_unit_test(test_machines_by_name),
        cmocka_unit_test(test_the_nearest_are_named),
        cmocka_unit_test(test_what_bounds_a_step),
        cmocka_unit_test(test_a_mixture_reads_what_it_meets),
        cmocka_unit_test(test_layers_with_a_window),
        cmocka_unit_test(test_a_rank_without_a_kv_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
