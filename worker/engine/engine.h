#pragma once
/* A model made ready on a device: files, program, weights, KV cache, runner, with the memory table
 * that was true before anything was allocated. What plans and sequences are is the executor's
 * matter; the golden tests drive this one directly. */
#include "worker/engine/state.h"

/* Files, program and device: all of the memory table but the KV cache. Allocates nothing large. */
MUST_USE enum status engine_measure(const struct engine_setup *s, struct engine **out,
                                    struct error *err);
/* Blocks of the KV cache, of a device that has so much left, into kv_groups and kv_bytes. Sizes
 * alone, once; engine_load does it with what is free. STATUS_NO_MEMORY with the table's numbers. */
MUST_USE enum status engine_size_kv(struct engine *e, const struct engine_beside *beside,
                                    uint64_t available_bytes, struct error *err);
/* Sizes the KV cache and reads the weights, once. STATUS_NO_MEMORY with the table's numbers when it
 * cannot fit, before anything is allocated. After an error only engine_close. */
MUST_USE enum status engine_load(struct engine *e, const struct engine_beside *beside,
                                 struct error *err);
/* Both, with nothing beside it. */
MUST_USE enum status engine_open(const struct engine_setup *s, struct engine **out,
                                 struct error *err);
void engine_close(struct engine *e); /* NULL is fine */
/* Puts another rank's shard in the place of this one, from the files, which are opened again; the
 * device stays, and the KV cache within a stage of the same tp. Numbers of blocks are the shape's.
 * Takes as long as opening did. After an error there is no shard at all and the engine can only
 * take a rank again or be closed; but STATUS_INVALID for a tp that is no shape's, and for a rank
 * that the group does not have, changes nothing. STATUS_NO_MEMORY as engine_open. */
MUST_USE enum status engine_take_rank(struct engine *e, uint32_t tp, uint32_t rank, uint32_t stage,
                                      struct error *err);
