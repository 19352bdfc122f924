#pragma once
/* Lists the demo models: small models that a package index has, for a first try. Each has a
 * name that `--model` takes, and a folder of its own in the cache. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/info/sampling_defaults.h"

struct demo_model {
    const char *name;   /* as --model takes it; also the default served name */
    const char *folder; /* name of the folder below CACHE/models */
    const char *file;   /* name of the GGUF in that folder */
    const char *size;   /* size of the file, for messages */
    bool is_base;       /* true = continues text, and was not trained to answer */
    /* sampling parameters that the model's makers recommend; the file does not have them */
    struct sampling_defaults sampling;
};

extern const struct demo_model demo_models[];
extern const size_t n_demo_models;

/* Returns the demo model of this name, or NULL. */
const struct demo_model *demo_model_find(const char *name);
