/* Tests --speculative-config and its short forms: the resulting settings, and the error text of
 * each refusal. */
#include "common/options/speculation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define OFF                                                                                        \
    {                                                                                              \
        0, 0, 0, 0, 0, ""                                                                          \
    }

static const struct {
    const char *name;
    struct speculation_options given;
    struct speculation want;
    const char *error; /* words of the error; NULL = accepted */
} cases[] = {
    {"nothing", {.config = NULL}, OFF, NULL},
    {"lengths alone turn nothing on", {.lookup_max = 4, .disable_by_batch_size = 2}, OFF, NULL},
    {"a number", {.n_tokens = 5}, {5, 16, 2, 0, 0, ""}, NULL},
    {"a method", {.method = "ngram"}, {4, 16, 2, 0, 0, ""}, NULL},
    {"vLLM's older name of it", {.method = "[ngram]", .lookup_max = 3}, {4, 3, 2, 0, 0, ""}, NULL},
    {"all of it",
     {"{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":6,"
      "\"prompt_lookup_min\":3,\"disable_by_batch_size\":9}",
      NULL, NULL, 0, 0, 0, 0},
     {5, 6, 3, 9, 0, ""},
     NULL},
    {"nulls say nothing",
     {.config = "{\"method\":null,\"prompt_lookup_max\":null}"},
     {4, 16, 2, 0, 0, ""},
     NULL},
    {"a model that is none", {.config = "{\"model\":\"ngram\"}"}, {4, 16, 2, 0, 0, ""}, NULL},
    {"flags go first",
     {.config = "{\"num_speculative_tokens\":5,\"prompt_lookup_max\":6}", .n_tokens = 7},
     {7, 6, 2, 0, 0, ""},
     NULL},
    {"one token", {.method = "ngram", .lookup_max = 1}, {4, 1, 1, 0, 0, ""}, NULL},
    {"long ones only", {.method = "ngram", .lookup_min = 20}, {4, 20, 20, 0, 0, ""}, NULL},
    {"longest below shortest",
     {.method = "ngram", .lookup_max = 2, .lookup_min = 3},
     OFF,
     "prompt_lookup_min (3) must not be greater than prompt_lookup_max (2)"},
    {"no JSON", {.config = "{ngram}"}, OFF, "not valid JSON"},
    {"a key twice",
     {.config = "{\"method\":\"ngram\",\"method\":\"ngram\"}"},
     OFF,
     "not valid JSON"},
    {"no object", {.config = "[4]"}, OFF, "must be a JSON object"},
    {"a draft model",
     {.config = "{\"model\":\"some/model\"}"},
     {4, 0, 0, 0, SPECULATION_DRAFT_MODEL, "some/model"},
     NULL},
    {"all of a draft model",
     {.config = "{\"method\":\"draft_model\",\"model\":\"a\",\"num_speculative_tokens\":5,"
                "\"disable_by_batch_size\":3}"},
     {5, 0, 0, 3, SPECULATION_DRAFT_MODEL, "a"},
     NULL},
    {"a draft model by flag", {.model = "b"}, {4, 0, 0, 0, SPECULATION_DRAFT_MODEL, "b"}, NULL},
    {"a model by flag and in JSON",
     {.config = "{\"model\":\"a\"}", .model = "b", .n_tokens = 2},
     {2, 0, 0, 0, SPECULATION_DRAFT_MODEL, "b"},
     NULL},
    {"the method decides",
     {.config = "{\"method\":\"ngram\",\"model\":\"a\"}"},
     {4, 16, 2, 0, 0, ""},
     NULL},
    {"an older flag of it", {.model = "[ngram]"}, {4, 16, 2, 0, 0, ""}, NULL},
    {"a draft model without one", {.method = "draft_model"}, OFF, "needs a model"},
    {"a draft model of no name", {.model = ""}, OFF, "needs a model"},
    {"a draft model that is a method",
     {.method = "draft_model", .model = "ngram"},
     OFF,
     "needs a model"},
    {"another method",
     {.config = "{\"method\":\"eagle3\"}"},
     OFF,
     "\"eagle3\" is not supported; choose ngram"},
    {"a method by flag",
     {.method = "mtp", .model = "a"},
     OFF,
     "\"mtp\" is not supported; choose ngram"},
    {"method is a number", {.config = "{\"method\":4}"}, OFF, "method must be a string"},
    {"unknown key", {.config = "{\"num_spec_tokens\":4}"}, OFF, "unknown key \"num_spec_tokens\""},
    {"none", {.config = "{\"num_speculative_tokens\":0}"}, OFF, "from 1 to 16"},
    {"too many", {.config = "{\"num_speculative_tokens\":17}"}, OFF, "from 1 to 16"},
    {"a half", {.config = "{\"num_speculative_tokens\":4.5}"}, OFF, "from 1 to 16"},
    {"too long", {.config = "{\"prompt_lookup_max\":65}"}, OFF, "from 1 to 64"},
    {"negative", {.config = "{\"disable_by_batch_size\":-1}"}, OFF, "from 1 to 65536"},
};

static void test_what_is_given(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct speculation got;
        struct error err = {0};
        enum status s = speculation_read(&cases[i].given, &got, &err);
        if (cases[i].error && (s == STATUS_OK || !strstr(err.text, cases[i].error)))
            fail_msg("%s: %s: %s", cases[i].name, status_name(s), err.text);
        if (!cases[i].error && s != STATUS_OK)
            fail_msg("%s: %s", cases[i].name, err.text);
        if (!cases[i].error && memcmp(&got, &cases[i].want, sizeof got) != 0)
            fail_msg("%s: %u tokens, n-grams of %u to %u, %u sequences", cases[i].name,
                     got.n_tokens, got.lookup_min, got.lookup_max, got.max_seqs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_given)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
