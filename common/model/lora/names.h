#pragma once
/* Names of modules, each the whole of one or its end after a dot. Private to common/model/lora. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

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
