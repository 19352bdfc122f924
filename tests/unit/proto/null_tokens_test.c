/* Tests the token rule of the null device. An independent script computed the expected tokens
 * from docs/develop/null-worker.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/null_tokens.h"

static void tokens_follow_the_documented_rule(void **state)
{
    static const struct {
        uint64_t seed;
        uint32_t i_prompt, i_choice;
        float temperature;
        uint32_t ids[3], n, vocab_size, want;
    } cases[] = {
        {0, 0, 0, 0.0f, {0}, 0, 256, 100},
        /* sampling is greedy, so seed, prompt and choice do not count */
        {7, 1, 2, 0.0f, {0}, 0, 256, 100},
        {7, 1, 2, 1.0f, {0}, 0, 256, 112},
        {7, 1, 2, 1.0f, {104, 105}, 2, 259, 107},
        {7, 1, 2, 1.0f, {104, 105}, 2, 16384, 5072},
        {UINT64_MAX, 0, 3, 0.5f, {UINT32_MAX, 0, 1}, 3, 262144, 2460},
        {0, 0, 0, 1.0f, {1, 2, 3}, 3, 16383, 120},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct null_hash h;
        null_hash_init(&h, cases[i].seed, cases[i].i_prompt, cases[i].i_choice,
                       cases[i].temperature);
        for (uint32_t k = 0; k < cases[i].n; k++)
            null_hash_push(&h, cases[i].ids[k]);
        assert_int_equal(null_hash_token(&h, cases[i].vocab_size), cases[i].want);
    }
}

static void a_changed_token_changes_what_follows(void **state)
{
    struct null_hash a, b;
    null_hash_init(&a, 1, 0, 0, 1.0f);
    b = a;
    null_hash_push(&a, 5);
    null_hash_push(&b, 6);
    int n_equal = 0;
    for (int i = 0; i < 64; i++) {
        n_equal += null_hash_token(&a, 32000) == null_hash_token(&b, 32000);
        null_hash_push(&a, 9);
        null_hash_push(&b, 9);
    }
    assert_true(n_equal < 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_follow_the_documented_rule),
        cmocka_unit_test(a_changed_token_changes_what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
