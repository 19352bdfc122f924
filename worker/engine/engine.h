#pragma once
/* Declares the engine: a model that is loaded on a device, with files, program, weights, KV
 * cache and runner. Its memory table is computed before anything large is allocated. The
 * executor adds plans and sequences; the golden tests call the engine directly. */
#include "worker/engine/state.h"

/* Opens files, program and device, and computes the memory table except the KV cache. Allocates
 * nothing large. */
MUST_USE enum status engine_measure(const struct engine_setup *s, struct engine **out,
                                    struct error *err);
/* Computes the size of the KV cache for a device with `available` bytes; writes kv_groups and
 * kv_bytes. Callers use it once, for the sizes alone. engine_load calls it with the free memory.
 * The error text of STATUS_NO_MEMORY has the numbers of the table. */
MUST_USE enum status engine_size_kv(struct engine *e, const struct engine_beside *beside,
                                    uint64_t available_bytes, struct error *err);
/* Computes the size of the KV cache and loads the weights, once. When the model does not fit,
 * returns STATUS_NO_MEMORY before anything is allocated, with the numbers of the table. After an
 * error the caller may only call engine_close. */
MUST_USE enum status engine_load(struct engine *e, const struct engine_beside *beside,
                                 struct error *err);
/* Measures and loads a model that has no other model beside it. */
MUST_USE enum status engine_open(const struct engine_setup *s, struct engine **out,
                                 struct error *err);
void engine_close(struct engine *e); /* `e` may be NULL */
/* Replaces the shard by that of another rank, from the files, which are opened again. The device
 * stays, and so does the KV cache within a stage of the same TP. Block counts are those of the
 * shape. The call takes as long as engine_open. After an error there is no shard, and the caller
 * may only call engine_take_rank or engine_close. STATUS_INVALID for a TP without a shape, or
 * for a rank outside the replica, changes nothing. STATUS_NO_MEMORY has the same meaning as in
 * engine_open. */
MUST_USE enum status engine_take_rank(struct engine *e, uint32_t tp, uint32_t rank, uint32_t stage,
                                      struct error *err);
/* Gives memory back. SLEEP_LEVEL_KV drops the KV cache and keeps the weights in host memory: on a
 * CPU they stay where they are. SLEEP_LEVEL_WEIGHTS drops both, with the runner. A level below the
 * present one changes nothing. After an error (the host cannot hold the weights) the engine has
 * neither weights nor KV cache, as at SLEEP_LEVEL_WEIGHTS. */
MUST_USE enum status engine_sleep(struct engine *e, enum sleep_level level, struct error *err);
/* Wakes the engine from SLEEP_LEVEL_KV. From SLEEP_LEVEL_WEIGHTS only engine_take_rank wakes it.
 * After an error the engine is at SLEEP_LEVEL_WEIGHTS. */
MUST_USE enum status engine_wake(struct engine *e, struct error *err);
