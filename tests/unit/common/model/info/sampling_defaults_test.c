#include "common/model/info/sampling_defaults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_file(void **state)
{
    static const struct {
        const char *json;
        enum status want;
        double temperature, top_p, min_p, penalty;
        int64_t top_k;
    } cases[] = {
        {"{}", STATUS_OK, 1, 1, 0, 1, 0},
        {"{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.9,\"top_k\":20}", STATUS_OK, 0.6, 0.9,
         0, 1, 20},
        {"{\"temperature\":null,\"min_p\":0.05,\"repetition_penalty\":1.1,\"top_k\":-1}", STATUS_OK,
         1, 1, 0.05, 1.1, 0},
        /* one wrong value discards all values of the file */
        {"{\"temperature\":0.5,\"top_p\":0}", STATUS_INVALID, 1, 1, 0, 1, 0},
        {"{\"temperature\":\"hot\"}", STATUS_INVALID, 1, 1, 0, 1, 0},
        {"{\"top_k\":1e30}", STATUS_INVALID, 1, 1, 0, 1, 0},
        {"{\"repetition_penalty\":0}", STATUS_INVALID, 1, 1, 0, 1, 0},
        {"[]", STATUS_INVALID, 1, 1, 0, 1, 0},
        {"{", STATUS_INVALID, 1, 1, 0, 1, 0},
    };
    char folder[] = "/tmp/cox-sampling-XXXXXX", path[64];
    struct error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling_defaults d = SAMPLING_DEFAULTS_OPENAI;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(cases[i].json, f);
        fclose(f);
        if (sampling_defaults_read(folder, &d, &err) != cases[i].want ||
            d.temperature != cases[i].temperature || d.top_p != cases[i].top_p ||
            d.min_p != cases[i].min_p || d.repetition_penalty != cases[i].penalty ||
            d.top_k != cases[i].top_k)
            fail_msg("%s", cases[i].json);
    }
    unlink(path);
    struct sampling_defaults d = SAMPLING_DEFAULTS_OPENAI;
    assert_int_equal(sampling_defaults_read(folder, &d, &err), STATUS_NOT_FOUND);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
