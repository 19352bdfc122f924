/* Tests the table of models' names, and the nearest names of an unknown one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/models/names.h"

enum { N = 256 };

/* The table never looks into a model, so any address stands for one. */
static char places[N];

static struct served_model *model(uint32_t i)
{
    return (struct served_model *)(void *)&places[i];
}

static bool add(struct model_names *t, const char *text, uint32_t i)
{
    return model_names_add(t, &(struct model_name){.text = text, .model = model(i)});
}

static void test_finds_each_name(void **state)
{
    static char texts[N][16];
    struct model_names t = {0};
    assert_null(model_names_find(&t, STR("a")));
    model_names_reset(&t, N);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(texts[i], sizeof texts[i], "model-%u", i);
        assert_true(add(&t, texts[i], i));
        assert_false(add(&t, texts[i], 0));
    }
    for (uint32_t i = 0; i < N; i++)
        assert_ptr_equal(model_names_find(&t, str_from(texts[i]))->model, model(i));
    assert_null(model_names_find(&t, STR("model-256")));
    assert_null(model_names_find(&t, STR("model")));
    assert_null(model_names_find(&t, STR("")));
    model_names_fini(&t);
}

static bool may_know(void *ctx, const char *text)
{
    return !ctx || strcmp(text, ctx) != 0;
}

static void test_nearest(void **state)
{
    static const struct {
        const char *asked, *hidden, *want;
    } cases[] = {
        {"llama-3.1-8b", NULL, "llama-3-8b llama-3-70b "},
        {"LLAMA-3-8B-Instruct", NULL, "llama-3-8b "},
        {"lama-3-8b", "llama-3-8b", "llama-3-70b "},
        {"qwen", NULL, "qwen2 qwen3 "},
        {"q", NULL, ""},
        {"nothing-of-the-kind", NULL, ""},
        {"", NULL, ""},
    };
    struct model_names t = {0};
    model_names_reset(&t, 4);
    for (const char **n = (const char *[]){"llama-3-8b", "llama-3-70b", "qwen3", "qwen2", NULL}; *n;
         n++)
        assert_true(add(&t, *n, 0));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *near[MODEL_NEAREST_MAX];
        char got[128] = "";
        const uint32_t n = model_names_nearest(&t, str_from(cases[i].asked), may_know,
                                               (void *)cases[i].hidden, near);
        for (uint32_t k = 0; k < n; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", near[k]);
        assert_string_equal(got, cases[i].want);
    }
    model_names_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_finds_each_name),
                                       cmocka_unit_test(test_nearest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
