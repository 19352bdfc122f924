/* Tests the memory table that a worker prints. Its total is the sum of its rows. */
#include "worker/startup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    struct executor_info info;
    const char *want;
} cases[] = {
    {{.weights_bytes = 3ull << 20,
      .activation_bytes = 1536 << 10,
      .comm_bytes = 5ull << 19,
      .kv_bytes = 2ull << 30,
      .limits = {.n_kv_groups = 2,
                 .kv_groups = {{.n_blocks = 100, .block_tokens = 16},
                               {.n_blocks = 7, .block_tokens = 32}}}},
     "weights             3.0 MiB\n"
     "activations         1.5 MiB\n"
     "collectives         2.5 MiB\n"
     "KV cache         2048.0 MiB   100 blocks of 16 tokens   7 blocks of 32 tokens\n"
     "total            2055.0 MiB\n"},
    {{.weights_bytes = 3ull << 20,
      .kv_bytes = 2ull << 20,
      .draft_bytes = 1ull << 20,
      .draft_kv_bytes = 1ull << 19},
     "weights             3.0 MiB\n"
     "activations         0.0 MiB\n"
     "collectives         0.0 MiB\n"
     "KV cache            2.0 MiB\n"
     "draft model         1.0 MiB\n"
     "its KV cache        0.5 MiB\n"
     "total               6.5 MiB\n"},
    {{.kv_bytes = 1ull << 19, .grammar_bytes = 64ull << 20},
     "weights             0.0 MiB\n"
     "activations         0.0 MiB\n"
     "collectives         0.0 MiB\n"
     "KV cache            0.5 MiB\n"
     "total               0.5 MiB\n"
     "grammars           64.0 MiB   more at most, if answers use grammars\n"},
};

static void test_memory_table(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        startup_memory_table(&cases[i].info, &b);
        assert_string_equal(b.ptr, cases[i].want);
        strbuf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
