/* Tests which pooling a model's folder and `--pooler-config` request. */
#include "gateway/prepare/pooling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    /* the folder has no file 1_Pooling/config.json */
    assert_int_equal(pooling_of_model(folder), POOLING_LAST);
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

static void test_config(void **state)
{
    static const struct {
        const char *json, *why; /* `why`: part of the error; NULL = the config is valid */
        bool chunks;
        uint32_t max_embed_len;
    } cases[] = {
        {NULL, NULL, false, 0},
        {"{}", NULL, false, 0},
        {"{\"enable_chunked_processing\":true,\"max_embed_len\":3072000}", NULL, true, 3072000},
        {"{\"max_embed_len\":null}", NULL, false, 0},
        {"{\"max_embed_len\":0}", "max_embed_len", false, 0},
        {"{\"enable_chunked_processing\":1}", "true or false", false, 0},
        {"{\"pooling_type\":\"CLS\"}", "pooling_type is an unknown key", false, 0},
        {"[]", "the value is JSON, but not an object", false, 0},
        {"{", "--pooler-config must be a JSON object", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pooler_config c;
        struct error err = {0};
        enum status s = pooler_config_read(cases[i].json, &c, &err);
        if ((s == STATUS_OK) != (cases[i].why == NULL) ||
            (cases[i].why
                 ? !strstr(err.text, cases[i].why)
                 : c.chunks != cases[i].chunks || c.max_embed_len != cases[i].max_embed_len))
            fail_msg("%s: %s", cases[i].json, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_config)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
