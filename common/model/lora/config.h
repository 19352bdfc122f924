#pragma once
/* Reads and checks adapter_config.json. Only common/model/lora includes this header. */
#include <jansson.h>

#include "common/base/status.h"
#include "common/model/lora/names.h"

struct lora_config {
    const char *folder; /* path of the folder, borrowed, for error texts */
    json_t *root;
    uint32_t rank;
    double alpha;
    bool rslora;
    struct lora_names ranks, alphas; /* names of rank_pattern and of alpha_pattern */
    struct lora_names targets;       /* names of target_modules; empty = an expression */
    bool some_layers; /* true = only some layers, or some modules of a name, are adapted */
};
/* Reads the configuration. The caller calls lora_config_fini also after an error. `root` is the
 * folder below which all files must lie, with links resolved; NULL = anywhere. */
MUST_USE enum status lora_config_read(const char *folder, const char *root, struct lora_config *c,
                                      struct error *err);
void lora_config_fini(struct lora_config *c);
void lora_config_of(const struct lora_config *c, const char *module, uint32_t *rank, float *scale);
