/* Tests the conversion of SageMaker's batch transform variables to arguments of `cox up`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/sagemaker/settings.h"

/* Returns true when the arguments contain `flag value`. With `flag` NULL, returns true when a
 * warning contains `value`. */
static bool gives(char *const *environ_, const char *flag, const char *value)
{
    const struct sagemaker_input in = {.environ_ = environ_, .has_weights = true};
    struct sagemaker_output out;
    struct arena arena;
    struct error err;
    bool found = false;
    arena_init(&arena, 0);
    assert_int_equal(sagemaker_read(&in, &arena, &out, &err), STATUS_OK);
    for (uint32_t i = 0; flag && i + 1 < out.n_args; i++)
        found |= strcmp(out.args[i], flag) == 0 && strcmp(out.args[i + 1], value) == 0;
    for (uint32_t i = 0; !flag && i < out.n_warnings; i++)
        found |= strstr(out.warnings[i], value) != NULL;
    arena_fini(&arena);
    return found;
}

/* A batch job requests no limit by a payload of 0 MB. The server's own limit is kept. */
static void test_no_bound(void **state)
{
    char *alone[] = {(char[]){"SAGEMAKER_MAX_PAYLOAD_IN_MB=0"}, NULL};
    char *beside[] = {(char[]){"SERVING_MAX_REQUEST_SIZE=5000"},
                      (char[]){"SAGEMAKER_MAX_PAYLOAD_IN_MB=0"}, NULL};
    assert_true(gives(alone, "--max-body-bytes", "67108864"));
    assert_true(gives(beside, "--max-body-bytes", "5000"));
}

static void test_strategy(void **state)
{
    char *several[] = {(char[]){"SAGEMAKER_BATCH_STRATEGY=MULTI_RECORD"}, NULL};
    char *single[] = {(char[]){"SAGEMAKER_BATCH_STRATEGY=SINGLE_RECORD"}, NULL};
    assert_true(gives(several, NULL, "Set BatchStrategy to SingleRecord"));
    assert_false(gives(single, NULL, "BatchStrategy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_bound),
                                       cmocka_unit_test(test_strategy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
