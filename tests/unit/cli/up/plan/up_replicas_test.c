/* Tests `--dp` beside `--workers`: it limits the number of replicas, and the other workers are
 * spares without cores. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *value(const struct up_child *c, const char *flag)
{
    for (uint32_t i = 1; i + 1 < c->n_args; i++)
        if (strcmp(c->argv[i], flag) == 0)
            return c->argv[i + 1];
    return NULL;
}

static bool is_text(const char *got, const char *want)
{
    return want ? got && strcmp(got, want) == 0 : !got;
}

static const struct {
    const char *args[8], *max_replicas, *threads, *peer_timeout;
} cases[] = {
    {{"--dp", "2", "--workers", "4"}, "2", "6", "1.5"},
    {{"--dp", "2", "--workers", "5", "--tp", "2"}, "2", "3", "1.5"},
    {{"--dp", "2"}, NULL, "6", "1.5"}, /* `cox scale` may add replicas */
    {{"--workers", "4"}, NULL, "3", "1.5"},
    {{"--dp", "2", "--workers", "4", "--prefill-workers", "2"}, NULL, "3", "1.5"},
    {{"--peer-timeout", "7.5"}, NULL, "12", "7.5"},
};

static void test_replicas_and_spares(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *argv[10] = {(char[]){"up"}}, *no_env[] = {NULL};
        struct up_options o = {0};
        struct config_result res;
        struct up_plan plan;
        struct arena arena;
        struct error err = {0};
        const struct up_place place = {.bin_dir = "/b", .keys_dir = "/k", .n_cores = 12};
        int argc = 1;
        for (; cases[i].args[argc - 1]; argc++)
            argv[argc] = (char *)cases[i].args[argc - 1];
        arena_init(&arena, 0);
        assert_int_equal(config_parse(up_specs, up_n_specs, argc, argv, no_env, &o, &res, &err),
                         STATUS_OK);
        assert_int_equal(up_plan_build(&o, "/m.gguf", &place, &arena, &plan, &err), STATUS_OK);
        assert_true(is_text(value(&plan.children[0], "--max-groups"), cases[i].max_replicas));
        assert_true(is_text(value(&plan.children[0], "--peer-timeout"), cases[i].peer_timeout));
        assert_true(is_text(value(&plan.children[2], "--threads"), cases[i].threads));
        arena_fini(&arena);
        config_fini(&res);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replicas_and_spares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
