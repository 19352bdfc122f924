#pragma once
/* adapter_config.json, read and checked. Private to common/model/lora. */
#include <jansson.h>

#include "common/base/status.h"
#include "common/model/lora/names.h"

struct lora_config {
    const char *folder; /* borrowed, for error texts */
    json_t *root;
    uint32_t rank;
    double alpha;
    bool rslora;
    struct lora_names ranks, alphas; /* patterns */
    struct lora_names targets;       /* none: an expression says it */
    bool some_layers;                /* not of every layer, or not every module of a name */
};
/* lora_config_fini is due after an error, too. root: of lora_adapter_open. */
MUST_USE enum status lora_config_read(const char *folder, const char *root, struct lora_config *c,
                                      struct error *err);
void lora_config_fini(struct lora_config *c);
void lora_config_of(const struct lora_config *c, const char *module, uint32_t *rank, float *scale);
