#pragma once
/* A LoRA adapter (Hu et al. 2021) as PEFT saves one: a folder with adapter_config.json and
 * adapter_model.safetensors, or adapter_model.bin. The folder is hostile: whatever the
 * configuration says that would change the numbers and is not run here is refused by its name, and
 * every number of every tensor is looked at. Which modules a model has, and their shapes, is the
 * caller's matter. Immutable. */
#include "common/model/files/tensor.h"

#define LORA_MODULE_MAX 192u /* bytes of a module's name */

struct lora_adapter;
/* root: its files have to be below, links followed; NULL: anywhere. STATUS_NOT_FOUND,
 * STATUS_INVALID, STATUS_UNSUPPORTED or STATUS_DENIED, with folder, file, and key, tensor or root.
 */
MUST_USE enum status lora_adapter_open(const char *folder, const char *root,
                                       struct lora_adapter **out, struct error *err);
void lora_adapter_close(struct lora_adapter *a);             /* NULL is fine */
const char *lora_adapter_file(const struct lora_adapter *a); /* which of the two; static */

/* XXH3-128 over all that the numbers it adds depend on: modules, scales, tensors whole. The same
 * for every rank that read the same. */
void lora_adapter_identity(const struct lora_adapter *a, uint64_t out[2]);

/* y += scale * B (A x): a [rank][inputs], b [outputs][rank], which are F32, F16 or BF16. */
struct lora_module {
    char name[LORA_MODULE_MAX]; /* "model.layers.0.self_attn.q_proj" */
    const struct tensor *a, *b;
    uint32_t rank;
    float scale;
};
/* In no order; each has both tensors, of this rank. */
uint32_t lora_adapter_n_modules(const struct lora_adapter *a);
const struct lora_module *lora_adapter_module_at(const struct lora_adapter *a, uint32_t i);
const struct lora_module *lora_adapter_find(const struct lora_adapter *a, const char *name);
/* Does the configuration say that a module of this name has an adapter? False where it names
 * modules in a way that is not read (an expression, some of the layers). */
bool lora_adapter_targets(const struct lora_adapter *a, const char *name);
/* The names in target_modules, when it is a list. */
uint32_t lora_adapter_n_targets(const struct lora_adapter *a);
const char *lora_adapter_target_at(const struct lora_adapter *a, uint32_t i);
/* Sets seen[i] of each target that names this module: is its name, or the end of it after a dot. */
void lora_adapter_mark_targets(const struct lora_adapter *a, const char *name, bool *seen);
