/* Which pooling a model's folder asks for. */
#include "gateway/pooling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_kinds(void **state)
{
    static const struct {
        const char *config;
        enum pooling_kind want;
    } cases[] = {
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}", POOLING_MEAN},
        {"{\"pooling_mode_lasttoken\":true,\"pooling_mode_mean_tokens\":false}", POOLING_LAST},
        {"{\"pooling_mode\":\"mean\"}", POOLING_MEAN},
        {"{\"pooling_mode\":\"lasttoken\"}", POOLING_LAST},
        {"{\"pooling_mode\":\"cls\"}", POOLING_NONE},
        {"{\"pooling_mode_cls_token\":true}", POOLING_NONE},
        {"{\"pooling_mode_max_tokens\":true}", POOLING_NONE},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":true}", POOLING_NONE},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":true}", POOLING_NONE},
        {"{}", POOLING_NONE},
        {"not JSON", POOLING_NONE},
    };
    char folder[] = "/tmp/coxpoolXXXXXX", sub[64], file[96];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pooling_of_model(folder), POOLING_LAST); /* no such file */
    assert_int_equal(pooling_of_model(NULL), POOLING_LAST);
    snprintf(sub, sizeof sub, "%s/1_Pooling", folder);
    snprintf(file, sizeof file, "%s/config.json", sub);
    assert_int_equal(mkdir(sub, 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        assert_true(fputs(cases[i].config, f) >= 0);
        assert_int_equal(fclose(f), 0);
        if (pooling_of_model(folder) != cases[i].want)
            fail_msg("%s", cases[i].config);
    }
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(sub), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
