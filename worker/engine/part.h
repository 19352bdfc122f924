#pragma once
/* A shard of the model: its program, and the memory that it takes. */
#include "worker/comm/stages.h"
#include "worker/engine/state.h"

/* What a shard takes beside its KV cache. */
struct engine_part {
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes;
};

MUST_USE enum status engine_build_part(const struct engine *e, struct comm_place at,
                                       struct program **out, struct error *err);
/* From shapes alone; the files are open. */
MUST_USE enum status engine_measure_part(const struct engine *e, const struct program *p,
                                         struct engine_part *out, struct error *err);
/* The loader knows tensors, not files: names these in front of an error. */
MUST_USE enum status engine_in_files(const struct engine *e, enum status s, struct error *err);
