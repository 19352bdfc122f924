#pragma once
/* Keeps names of modules. A name matches a whole module name, or the end of a module name after
 * a dot. Only common/model/lora includes this header. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct lora_name {
    const char *name;    /* text of the name, borrowed */
    const json_t *value; /* value of the name in a pattern, borrowed; NULL = none */
    uint32_t i;          /* position of the name in the configuration */
};
/* `lora_names` is a list of names. A look-up needs one binary search for each end of the
 * module's name. All zero = no names. */
struct lora_names {
    struct lora_name *all; /* names, [n]; sorted by name after lora_names_sort */
    uint32_t n;
};
void lora_names_init(struct lora_names *s, uint32_t most);
void lora_names_add(struct lora_names *s, const char *name, const json_t *value);
/* Sorts the names; call it after the last lora_names_add. */
void lora_names_sort(struct lora_names *s);
void lora_names_fini(struct lora_names *s);
/* Returns the first name of the configuration that matches the module, as in PEFT. Returns NULL
 * when no name matches. */
const struct lora_name *lora_names_find(const struct lora_names *s, const char *module);
/* Sets seen[i] for every name that matches the module. */
void lora_names_mark(const struct lora_names *s, const char *module, bool *seen);
