/* Tests options of cox-worker that depend on the device. */
#include "worker/setup/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Each kind of device accepts a --dtype that it has or exceeds, and refuses other values. */
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

/* The instruction set may be given by its short name in the environment. A misspelt name is an
 * error. */
static void test_isa_by_environment(void **state)
{
    static const struct {
        const char *variable;
        int want; /* expected index of the choice; -1 = refused, with the variable's name */
    } cases[] = {{"COX_ISA=avx2", 2}, {"COX_CPU_ISA=scalar", 1}, {"COX_ISA=avx3", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *argv[] = {(char[]){"w"}, NULL}, *env[] = {(char *)cases[i].variable, NULL};
        struct worker_options o = {0};
        struct config_result res;
        struct error err = {0};
        enum status s =
            config_parse(worker_option_specs, worker_n_option_specs, 1, argv, env, &o, &res, &err);
        if (cases[i].want < 0) {
            assert_int_equal(s, STATUS_INVALID);
            assert_non_null(strstr(err.text, "_ISA"));
        } else {
            assert_int_equal(s, STATUS_OK);
            assert_int_equal(o.cpu_isa, cases[i].want);
        }
        config_fini(&res);
    }
}

/* Two listeners of one worker on the same port are refused, with the names of both flags. */
static void test_ports_meet(void **state)
{
    static const struct {
        const char *args[8], *want[2]; /* want NULL = no conflict */
    } cases[] = {
        {{"--comm-port", "7100", "--kv-port", "7200"}, {NULL}},
        {{"--comm-port", "0", "--kv-port", "0", "--http-port", "0"}, {NULL}},
        {{"--kv-port", "-1", "--http-port", "-1"}, {NULL}},
        {{"--comm-port", "7100", "--kv-port", "7100"}, {"--comm-port", "--kv-port"}},
        {{"--comm-port", "7100", "--http-port", "7100"}, {"--comm-port", "--http-port"}},
        {{"--kv-port", "7100", "--http-port", "7100"}, {"--kv-port", "--http-port"}},
        {{"--comm-port", "7003", "--ordinal", "2"}, {"--comm-port", "7001 + ordinal"}},
        {{"--comm-port", "7003", "--ordinal", "1"}, {NULL}},
        {{"--comm-port", "7003", "--ordinal", "2", "--http-port", "7100"}, {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *argv[11] = {(char[]){"w"}, (char[]){"--insecure"}}, *no_env[] = {NULL};
        int argc = 2;
        for (; argc - 2 < 8 && cases[i].args[argc - 2]; argc++)
            argv[argc] = (char *)cases[i].args[argc - 2];
        struct worker_options o = {0};
        struct config_result res;
        struct error err = {0};
        assert_int_equal(config_parse(worker_option_specs, worker_n_option_specs, argc, argv,
                                      no_env, &o, &res, &err),
                         STATUS_OK);
        enum status s = worker_options_check(&o, &err);
        bool refused = cases[i].want[0] != NULL;
        if (s != (refused ? STATUS_INVALID : STATUS_OK) ||
            (refused &&
             (!strstr(err.text, cases[i].want[0]) || !strstr(err.text, cases[i].want[1]))))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        config_fini(&res);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dtype),
                                       cmocka_unit_test(test_isa_by_environment),
                                       cmocka_unit_test(test_ports_meet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
