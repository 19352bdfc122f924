#pragma once
/* Names of modules. A name stands for a whole module name, or for its end after a dot. Private
 * to common/model/lora. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct lora_name {
    const char *name;    /* borrowed */
    const json_t *value; /* borrowed; NULL = none */
    uint32_t i;          /* position in the configuration */
};
/* A look-up needs one binary search for each end of the module's name. All zero = no names. */
struct lora_names {
    struct lora_name *all; /* [n]; sorted by name after lora_names_sort */
    uint32_t n;
};
void lora_names_init(struct lora_names *s, uint32_t most);
void lora_names_add(struct lora_names *s, const char *name, const json_t *value);
void lora_names_sort(struct lora_names *s); /* call after the last lora_names_add */
void lora_names_fini(struct lora_names *s);
/* Returns the first name of the configuration that matches the module, as in PEFT; NULL when
 * none does. */
const struct lora_name *lora_names_find(const struct lora_names *s, const char *module);
/* Sets seen[i] for every name that matches the module. */
void lora_names_mark(const struct lora_names *s, const char *module, bool *seen);
