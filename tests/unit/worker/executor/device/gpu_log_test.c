/* Tests the numbers in the log lines that a worker writes when it starts on a GPU. */
#include "worker/executor/device/gpu_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_numbers(void **state)
{
    static const struct {
        uint64_t n;
        const char *text;
    } cases[] = {{0, "0"},
                 {7, "7"},
                 {999, "999"},
                 {1000, "1,000"},
                 {613024, "613,024"},
                 {UINT64_MAX, "18,446,744,073,709,551,615"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[32];
        assert_string_equal(gpu_log_number(cases[i].n, out), cases[i].text);
    }
}

/* The concurrency agrees with vLLM's log: 613,024 tokens of KV cache hold 4.68 requests of
 * 131,072 tokens. */
static void test_concurrency(void **state)
{
    struct program program = {.n_kv_groups = 1};
    struct engine e = {.program = &program, .max_model_len = 131072};
    e.kv_groups[0] = (struct kv_group){.kind = KV_FULL, .block_tokens = 16, .n_blocks = 38314};
    assert_in_range((int)(gpu_log_concurrency(&e) * 1000), 4676, 4677);
    program.n_kv_groups = 2; /* the group that runs out of blocks first decides */
    e.kv_groups[1] = (struct kv_group){
        .kind = KV_WINDOW, .window_tokens = 1024, .block_tokens = 16, .n_blocks = 130};
    assert_int_equal((int)(gpu_log_concurrency(&e) * 1000), 2000);
    e.kv_groups[1].window_tokens = 1 << 20; /* the window is wider than any sequence */
    assert_int_equal((int)(gpu_log_concurrency(&e) * 1000000), 130 * 1000000 / 8192);
}

/* The first case has the figures of a 40 GB A100 from a log of vLLM. The parts add up to the
 * budget. */
static void test_profile(void **state)
{
    static const struct gpu_log_budget cases[] = {{39.39, 0.9, 3.97, 0.36, 29.02},
                                                  {139.72, 0.92, 61.204, 1.006, 60.555},
                                                  {23.5, 0.5, 8.994, 0.555, 0.005}};
    char text[512];
    assert_string_equal(
        gpu_log_profile(&cases[0], text),
        "the current vLLM instance can use total_gpu_memory (39.39GiB) x gpu_memory_utilization "
        "(0.90) = 35.45GiB; model weights take 3.97GiB; non_torch_memory takes 2.10GiB; PyTorch "
        "activation peak memory takes 0.36GiB; the rest of the memory reserved for KV Cache is "
        "29.02GiB");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double total, part, budget, weights, other, activations, kv;
        int n = sscanf(gpu_log_profile(&cases[i], text),
                       "the current vLLM instance can use total_gpu_memory (%lfGiB) x "
                       "gpu_memory_utilization (%lf) = %lfGiB; model weights take %lfGiB; "
                       "non_torch_memory takes %lfGiB; PyTorch activation peak memory takes "
                       "%lfGiB; the rest of the memory reserved for KV Cache is %lfGiB",
                       &total, &part, &budget, &weights, &other, &activations, &kv);
        assert_int_equal(n, 7);
        double sum = weights + other + activations + kv - budget;
        assert_true(sum < 0.02 && sum > -0.02);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_concurrency),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
