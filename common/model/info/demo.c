#include "common/model/info/demo.h"

#include <string.h>

/* demo-base was the only demo model in earlier caches, so its folder is still models/demo. */
const struct demo_model demo_models[] = {
    {.name = "demo",
     .folder = "demo-instruct",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .size = "98 MB",
     .sampling = {.temperature = 0.2, .top_p = 0.9, .repetition_penalty = 1}},
    {.name = "demo-base",
     .folder = "demo",
     .file = "gemma-3-270m-q4_k_m.gguf",
     .size = "253 MB",
     .is_base = true,
     .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}},
};
const size_t n_demo_models = sizeof demo_models / sizeof *demo_models;

const struct demo_model *demo_model_find(const char *name)
{
    for (size_t i = 0; i < n_demo_models; i++)
        if (strcmp(demo_models[i].name, name) == 0)
            return &demo_models[i];
    return NULL;
}
