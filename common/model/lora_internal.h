#pragma once
/* Private to common/model: adapter_config.json as lora_config.c reads it for lora_adapter.c. */
#include <jansson.h>

#include "common/model/lora_adapter.h"

struct lora_config {
    const char *folder; /* borrowed, for error texts */
    json_t *root;
    uint32_t rank;
    double alpha;
    bool rslora;
    const json_t *ranks, *alphas; /* patterns; NULL: none */
    const json_t *targets;        /* a list of names; NULL: an expression says it */
    bool some_layers;             /* not of every layer, or not every module of a name */
};
/* lora_config_fini is due after an error, too. */
MUST_USE enum status lora_config_read(const char *folder, struct lora_config *c, struct error *err);
void lora_config_fini(struct lora_config *c);
void lora_config_of(const struct lora_config *c, const char *module, uint32_t *rank, float *scale);
