/* The numbers of the lines that a start on a GPU says. */
#include "worker/gpu_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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

/* vLLM's own example: 613,024 tokens of 131,072 are 4.68 requests. */
static void test_concurrency(void **state)
{
    struct program program = {.n_kv_groups = 1};
    struct engine e = {.program = &program, .max_model_len = 131072};
    e.kv_groups[0] = (struct kv_group){.kind = KV_FULL, .block_tokens = 16, .n_blocks = 38314};
    assert_in_range((int)(gpu_log_concurrency(&e) * 1000), 4676, 4677);
    program.n_kv_groups = 2; /* whichever runs out first */
    e.kv_groups[1] = (struct kv_group){
        .kind = KV_WINDOW, .window_tokens = 1024, .block_tokens = 16, .n_blocks = 130};
    assert_int_equal((int)(gpu_log_concurrency(&e) * 1000), 2000);
    e.kv_groups[1].window_tokens = 1 << 20; /* wider than any sequence */
    assert_int_equal((int)(gpu_log_concurrency(&e) * 1000000), 130 * 1000000 / 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_concurrency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
