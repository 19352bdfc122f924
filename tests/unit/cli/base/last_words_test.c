#include "cli/base/last_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *line, *want;
    bool failure;
} cases[] = {
    {"2026 error worker-0 start_failed status=invalid error=\"no \\\"x\\\" in C:\\\\y\"",
     "no \"x\" in C:\\y", true},
    {"{\"time\":\"2026\",\"event\":\"start_failed\",\"status\":\"io\",\"error\":\"a: b\"}", "a: b",
     true},
    {"2026 error worker-0 start_failed status=invalid",
     "2026 error worker-0 start_failed status=invalid", true},
    {"2026 error worker-0 start_failed error=\"cut off \\", "cut off \\", true},
    {"2026 error head other error=\"a\"", "2026 error head other error=\"a\"", false},
    {"cox-head: --tp: \"x\" is not allowed", "cox-head: --tp: \"x\" is not allowed", false},
    {"", "", false},
};

static void test_sentences(void **state)
{
    char out[64], little[5];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        last_words_sentence(cases[i].line, out, sizeof out);
        assert_string_equal(out, cases[i].want);
        assert_int_equal(last_words_is_failure(cases[i].line), cases[i].failure);
    }
    last_words_sentence(cases[0].line, little, sizeof little);
    assert_string_equal(little, "no \"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sentences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
