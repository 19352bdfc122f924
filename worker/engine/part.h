#pragma once
/* What engine*.c share. */
#include "worker/comm/stages.h"
#include "worker/engine/engine.h"

/* What a shard takes beside its KV cache. */
struct engine_part {
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes;
};

MUST_USE enum status engine_build_part(const struct engine *e, struct comm_place at,
                                       struct program **out, struct error *err);
/* From shapes alone; the files are open. */
MUST_USE enum status engine_measure_part(const struct engine *e, const struct program *p,
                                         struct engine_part *out, struct error *err);

/* engine_shapes.c; between the measure and the load. */
/* Bytes by which another seat of the whole group takes more than this one, KV cache apart. */
MUST_USE enum status engine_seats_more(const struct engine *e, uint64_t *out, struct error *err);
/* The KV cache is sized: the whole TP, and smaller ones that fit into what was sized for it. */
void engine_find_shapes(struct engine *e);
/* NULL: no such TP. */
const struct engine_shape *engine_shape_of(const struct engine *e, uint32_t tp);
