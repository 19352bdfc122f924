#pragma once
/* Private to common/model: what lora_adapter.c is made of. */
#include <jansson.h>
#include <limits.h>

#include "common/model/lora/adapter.h"

/* ---- lora_names.c: names of modules, each the whole of one or its end after a dot ---- */

struct lora_name {
    const char *name;    /* borrowed */
    const json_t *value; /* borrowed; NULL: it has none */
    uint32_t i;          /* as they came */
};
/* To be found by a module's name in as many steps as that has ends, however many there are. Zeroed:
 * none. */
struct lora_names {
    struct lora_name *all; /* [n], by name once sorted */
    uint32_t n;
};
void lora_names_init(struct lora_names *s, uint32_t most);
void lora_names_add(struct lora_names *s, const char *name, const json_t *value);
void lora_names_sort(struct lora_names *s); /* after the last one */
void lora_names_fini(struct lora_names *s);
/* The first that came of those that name the module, as PEFT takes it; NULL: none does. */
const struct lora_name *lora_names_find(const struct lora_names *s, const char *module);
/* seen[i] of all that name it. */
void lora_names_mark(const struct lora_names *s, const char *module, bool *seen);

/* ---- lora_config.c: adapter_config.json ---- */

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

/* ---- lora_files.c ---- */

/* Where the folder's file is to be opened. STATUS_NOT_FOUND; STATUS_DENIED: not below root. */
MUST_USE enum status lora_file_find(const char *folder, const char *root, const char *file,
                                    char out[PATH_MAX], struct error *err);
