/* What the table of cox-worker's options leaves to the device. */
#include "worker/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Each value of --dtype on each kind of device: what it has, or has better, is taken. */
static void test_dtype(void **state)
{
    static const struct {
        const char *dtype;
        bool cpu, gpu;
    } cases[] = {{"auto", true, true}, {"bfloat16", true, true}, {"float16", true, true},
                 {"half", true, true}, {"float32", true, false}, {"float", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *argv[] = {(char[]){"w"}, (char[]){"--dtype"}, (char *)cases[i].dtype, NULL};
        char *no_env[] = {NULL};
        struct worker_options o = {0};
        struct config_result res;
        struct error err = {0};
        enum status s = config_parse(worker_option_specs, worker_n_option_specs, 3, argv, no_env,
                                     &o, &res, &err);
        assert_int_equal(s, STATUS_OK);
        s = worker_options_check_dtype(&o, "float32", &err);
        assert_int_equal(s, cases[i].cpu ? STATUS_OK : STATUS_UNSUPPORTED);
        s = worker_options_check_dtype(&o, "bfloat16", &err);
        assert_int_equal(s, cases[i].gpu ? STATUS_OK : STATUS_UNSUPPORTED);
        if (!cases[i].gpu && !strstr(err.text, cases[i].dtype))
            fail_msg("--dtype %s: %s", cases[i].dtype, err.text);
        config_fini(&res);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dtype)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
