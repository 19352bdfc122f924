#pragma once
/* Opens a LoRA adapter (Hu et al. 2021) in the form that PEFT saves: a folder with
 * adapter_config.json and adapter_model.safetensors or adapter_model.bin. The folder is not
 * trusted. A setting that would change the results and is not supported is refused by name, and
 * every number of every tensor is checked. The caller compares the modules and shapes with the
 * model's. The adapter is immutable after the open. */
#include "common/model/files/tensor.h"

#define LORA_MODULE_MAX 192u /* most bytes of a module's name, with the NUL */

struct lora_adapter;
/* Opens an adapter. `root` is the folder below which all files must lie, with links resolved;
 * NULL = anywhere. Returns STATUS_NOT_FOUND, STATUS_INVALID, STATUS_UNSUPPORTED or
 * STATUS_DENIED. The error text has the folder, the file, and the key, tensor or root. */
MUST_USE enum status lora_adapter_open(const char *folder, const char *root,
                                       struct lora_adapter **out, struct error *err);
void lora_adapter_close(struct lora_adapter *a); /* a may be NULL */
/* Returns the name of the tensor file, a static string. */
const char *lora_adapter_file(const struct lora_adapter *a);

/* Computes XXH3-128 over everything that determines the adapter's results: modules, scales,
 * whole tensors. All ranks that read the same adapter get the same value. */
void lora_adapter_identity(const struct lora_adapter *a, uint64_t out[2]);

/* `lora_module` changes a linear operator: y += scale * B (A x), with a [rank][inputs] and b
 * [outputs][rank], in F32, F16 or BF16. */
struct lora_module {
    char name[LORA_MODULE_MAX]; /* name of the module, such as "model.layers.0.self_attn.q_proj" */
    const struct tensor *a, *b;
    uint32_t rank;
    float scale;
};
/* Returns the number of modules. Modules are sorted by name, and each module has A and B of its
 * rank. */
uint32_t lora_adapter_n_modules(const struct lora_adapter *a);
const struct lora_module *lora_adapter_module_at(const struct lora_adapter *a, uint32_t i);
const struct lora_module *lora_adapter_find(const struct lora_adapter *a, const char *name);
/* Returns true when the configuration names this module as adapted. Returns false when the
 * configuration names modules in a way that is not supported (an expression, only some layers). */
bool lora_adapter_targets(const struct lora_adapter *a, const char *name);
/* Returns the number of names in target_modules, if it is a list. */
uint32_t lora_adapter_n_targets(const struct lora_adapter *a);
const char *lora_adapter_target_at(const struct lora_adapter *a, uint32_t i);
/* Sets seen[i] for each target that is this module's name, or the end of the name after a dot. */
void lora_adapter_mark_targets(const struct lora_adapter *a, const char *name, bool *seen);
