#include "tests/golden/golden_models.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t short_len;
} reference[] = {{"llama2_mha", 0},
                 {"llama31_gqa", 0},
                 {"llama32_tied_hd", 0},
                 {"mistral_swa", 0},
                 {"qwen2_bias", 0},
                 {"qwen3_qknorm", 0},
                 {"gemma2", 0},
                 {"gemma3_text", 0},
                 {"olmo2", 0},
                 {"phi3", 0},
                 {"phi3_longrope", 128},
                 {"mixtral", 0},
                 {"qwen3_moe", 0},
                 {"deepseek_v2_lite", 0},
                 {"deepseek_v2_qlora", 0},
                 {"deepseek_v3", 0},
                 {"gpt_oss_bf16", 0},
                 {"llama_awq", 0},
                 {"llama_gptq", 0},
                 {"llama_fp8_ct", 0},
                 {"qwen3_fp8_block", 0},
                 {"qwen3_fp8_partial", 0},
                 {"gpt_oss_mxfp4", 0}};
enum { N_REFERENCE = sizeof reference / sizeof *reference };

const char *golden_models_folder(void)
{
    const char *folder = getenv("COX_GOLDENS");
    return folder && *folder ? folder : "../shared/goldens";
}

struct list {
    struct golden_model *models;
    uint32_t n, cap;
};

/* A folder without expected.json is none. */
static void add(struct list *l, const char *folder, const char *name, uint32_t short_len)
{
    struct golden_model m = {.short_len = short_len};
    char expected[PATH_MAX + 16];
    snprintf(m.path, sizeof m.path, "%s%s%s", folder, *name ? "/" : "", name);
    snprintf(expected, sizeof expected, "%s/expected.json", m.path);
    if (access(expected, R_OK) != 0)
        return;
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
        add(l, "build/goldens", names[i]->d_name, 0);
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
            add(&l, folder, reference[i].name, reference[i].short_len);
        if (l.n == 0)
            printf("SKIPPED: none of the models is in %s (COX_GOLDENS)\n", folder);
    } else {
        add(&l, set, "", 0);
        if (l.n == 0)
            printf("SKIPPED: %s has no expected.json; scripts/make-goldens makes some\n", set);
    }
    *n = l.n;
    return l.models;
}
