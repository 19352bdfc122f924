#pragma once
/* Measures a shard of the model: its program and the memory that the shard needs. */
#include "worker/comm/stages.h"
#include "worker/engine/state.h"

/* `engine_part` holds the memory sizes of a shard without its KV cache. */
struct engine_part {
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes;
};

MUST_USE enum status engine_build_part(const struct engine *e, struct comm_place at,
                                       struct program **out, struct error *err);
/* Measures a shard from shapes alone; the files must be open. */
MUST_USE enum status engine_measure_part(const struct engine *e, const struct program *p,
                                         struct engine_part *out, struct error *err);
/* Adds the path of the files before the text of an error, because the loader knows only tensors. */
MUST_USE enum status engine_in_files(const struct engine *e, enum status s, struct error *err);
