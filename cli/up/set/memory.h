#pragma once
/* Divides the memory of a machine among the models of a set, before any process starts. The
 * functions are pure and use only sizes. */
#include "cli/up/set/types.h"
#include "common/base/status.h"
#include "common/base/str.h"

/* `set_memory` describes the memory: that of the host, or n_devices GPUs of equal size. */
struct set_memory {
    uint64_t device_bytes;
    uint32_t n_devices; /* 1 without GPUs: the host's memory is one device for all workers */
    bool on_gpus;       /* each worker has a device of its own */
};

/* Chooses each model's devices and KV cache. Models that always run get room first. On GPUs each
 * model gets the first devices with room. The KV caches shrink together until all models fit; if
 * they do not fit even with the least caches, an on-demand model gets a quarter of the memory
 * that the `always` models leave. *n_at_once: models that fit at the same time, taken in order.
 * STATUS_NO_MEMORY: the `always` models do not fit together, or a model never fits; the text names
 * it. */
MUST_USE enum status set_memory_plan(const struct set_memory *m, struct set_need *needs, uint32_t n,
                                     uint32_t *n_at_once, struct error *err);
/* Takes the memory of spare processes (`cox up --spares`) from each device. */
void set_memory_keep(struct set_memory *m, uint32_t n_spares);
/* Returns the memory of one worker. */
uint64_t set_worker_bytes(const struct set_need *need);
/* Returns the memory of all workers of a model. Weights that they share count once. */
uint64_t set_model_bytes(const struct set_need *need);
/* Returns the number of devices that the model occupies, and *each, the memory on each. */
uint32_t set_devices_of(const struct set_memory *m, const struct set_need *need, uint64_t *each);
/* Returns the memory that the model holds on each of its devices while it sleeps at `level` (1, 2),
 * with that of the processes. It may be more than the model's own memory. */
uint64_t set_asleep_bytes(const struct set_memory *m, const struct set_need *need, int level);
/* Appends the plan as a table, one line for each model. */
void set_memory_print(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                      uint32_t n_at_once, struct strbuf *out);
/* Appends the plan as JSON. `refusal` says why the models do not fit; NULL = they do. */
void set_memory_print_json(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                           uint32_t n_at_once, const char *refusal, struct strbuf *out);
