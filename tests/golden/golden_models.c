#include "tests/golden/golden_models.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const reference[] = {"llama2_mha",
                                        "llama31_gqa",
                                        "llama32_tied_hd",
                                        "mistral_swa",
                                        "qwen2_bias",
                                        "qwen3_qknorm",
                                        "gemma2",
                                        "gemma3_text",
                                        "olmo2",
                                        "phi3",
                                        "phi3_longrope",
                                        "mixtral",
                                        "qwen3_moe",
                                        "deepseek_v2_lite",
                                        "deepseek_v2_qlora",
                                        "deepseek_v3",
                                        "gpt_oss_bf16",
                                        "llama_awq",
                                        "llama_gptq",
                                        "llama_fp8_ct",
                                        "qwen3_fp8_block",
                                        "qwen3_fp8_partial",
                                        "gpt_oss_mxfp4"};
enum { N_REFERENCE = sizeof reference / sizeof *reference };

/* Lists the models that use other factors for texts longer than short_len tokens. */
static const struct {
    const char *name;
    uint32_t short_len;
} stretched[] = {{"phi3_longrope", 128}, {"phi3_long64", 64}};

const char *golden_models_folder(void)
{
    const char *folder = getenv("COX_GOLDENS");
    return folder && *folder ? folder : "build/goldens/reference";
}

struct list {
    struct golden_model *models;
    uint32_t n, cap;
};

static uint32_t short_len_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof stretched / sizeof *stretched; i++)
        if (strcmp(slash ? slash + 1 : path, stretched[i].name) == 0)
            return stretched[i].short_len;
    return 0;
}

/* Adds the model in a folder; a folder without expected.json is ignored. */
static void add(struct list *l, const char *folder, const char *name)
{
    struct golden_model m = {.short_len = 0};
    char expected[PATH_MAX + 16];
    snprintf(m.path, sizeof m.path, "%s%s%s", folder, *name ? "/" : "", name);
    snprintf(expected, sizeof expected, "%s/expected.json", m.path);
    if (access(expected, R_OK) != 0)
        return;
    m.short_len = short_len_of(m.path);
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 32;
        l->models = realloc(l->models, l->cap * sizeof *l->models);
        if (!l->models)
            abort();
    }
    l->models[l->n++] = m;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_own(struct list *l)
{
    struct dirent **names;
    int n = scandir("build/goldens", &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        add(l, "build/goldens", names[i]->d_name);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    if (l->n == 0)
        printf("SKIPPED: no models in build/goldens; scripts/make-goldens makes them\n");
}

struct golden_model *golden_models_find(const char *set, uint32_t *n)
{
    struct list l = {0};
    char folder[PATH_MAX];
    if (strcmp(set, "own") == 0) {
        add_own(&l);
    } else if (strcmp(set, "reference") == 0) {
        snprintf(folder, sizeof folder, "%s/models", golden_models_folder());
        for (int i = 0; i < N_REFERENCE; i++)
            add(&l, folder, reference[i]);
        if (l.n == 0)
            printf("SKIPPED: no models in %s; scripts/make-goldens makes them\n", folder);
    } else {
        add(&l, set, "");
        if (l.n == 0)
            printf("SKIPPED: %s has no expected.json; scripts/make-goldens makes some\n", set);
    }
    *n = l.n;
    return l.models;
}
