/* Finds the smaller TPs that an engine could serve (docs/develop/recovery.md, "Fewer ranks than
 * TP"). The rule: in any rank slot of a smaller TP the engine uses no more memory than it was
 * opened with. A larger shard therefore means a smaller KV cache. A TP that leaves less than one
 * sequence of full length is not offered. Memory beside the engine (a draft model with its KV
 * cache) does not change, so it is left out of the old and the new sum. */
#include "worker/engine/shapes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/engine/part.h"

static uint64_t part_bytes(const struct engine *e, struct comm_place at,
                           const struct engine_part *p)
{
    uint64_t sampling = comm_place_samples(&at) ? e->sampling_bytes : 0;
    return p->weights_bytes + p->activation_bytes + p->comm_bytes + p->lora_bytes + sampling;
}

/* Returns in *out the bytes that the rank slot needs without its KV cache. The caller frees *p. */
static enum status measure_rank_slot(const struct engine *e, struct comm_place at,
                                     struct program **p, uint64_t *out, struct error *err)
{
    struct engine_part part;
    TRY(engine_build_part(e, at, p, err));
    TRY(engine_measure_part(e, *p, &part, err));
    *out = part_bytes(e, at, &part);
    return STATUS_OK;
}

/* Returns the bytes of the engine without its KV cache, in the rank slot that it was opened for. */
static uint64_t own_bytes(const struct engine *e)
{
    const struct engine_part part = {e->weights_bytes, e->activation_bytes, e->comm_bytes,
                                     e->lora_bytes};
    return part_bytes(e, (struct comm_place){e->tp, e->pp, e->program->rank, e->program->stage},
                      &part);
}

enum status engine_rank_slots_more(const struct engine *e, uint64_t *out, struct error *err)
{
    uint32_t world = e->tp * e->pp;
    *out = 0;
    for (uint32_t i = 0; world > 1 && i < world; i++) {
        struct program *p = NULL;
        uint64_t bytes = 0, own = own_bytes(e);
        const struct comm_place at = {e->tp, e->pp, i % e->tp, i / e->tp};
        enum status s = measure_rank_slot(e, at, &p, &bytes, err);
        program_free(p);
        if (s != STATUS_OK)
            return s;
        if (bytes > own && bytes - own > *out)
            *out = bytes - own;
    }
    return STATUS_OK;
}

/* Computes the KV cache of a rank slot that has most_bytes in total. Lowers n_blocks of `shape`
 * and raises its block_bytes to fit this rank slot too. */
static enum status size_rank_slot(const struct engine *e, struct comm_place at, uint64_t most_bytes,
                                  struct engine_shape *shape, struct error *err)
{
    struct kv_group groups[PROGRAM_MAX_KV_GROUPS];
    struct program *p = NULL;
    uint64_t bytes = 0;
    enum status s = measure_rank_slot(e, at, &p, &bytes, err);
    if (s == STATUS_OK && bytes >= most_bytes)
        s = error_set(err, STATUS_NO_MEMORY,
                      "rank %u of stage %u needs %.1f MiB without a KV cache, but this worker has "
                      "%.1f MiB. Use more ranks or a smaller model",
                      at.rank, at.stage, (double)bytes / (1 << 20), (double)most_bytes / (1 << 20));
    const struct kv_shape kv = {.dtype = e->kv_dtype,
                                .block_tokens = e->kv_shape.block_tokens,
                                .max_model_len = e->max_model_len,
                                .memory_bytes = most_bytes - bytes};
    if (s == STATUS_OK)
        s = kv_store_size(p, &kv, groups, err);
    for (uint32_t g = 0; s == STATUS_OK && g < p->n_kv_groups; g++) {
        if (groups[g].n_blocks < shape->n_blocks[g])
            shape->n_blocks[g] = groups[g].n_blocks;
        if (groups[g].bytes_per_block > shape->block_bytes[g])
            shape->block_bytes[g] = (uint32_t)groups[g].bytes_per_block;
    }
    program_free(p);
    return s;
}

/* Computes a shape that fits every rank slot, because the head assigns them. */
static enum status size_shape(const struct engine *e, uint32_t tp, struct engine_shape *out,
                              struct error *err)
{
    /* no smaller TP gets more blocks than the full TP, because the draft model has no more twins */
    *out = e->shapes[0];
    out->tp = tp;
    memset(out->block_bytes, 0, sizeof out->block_bytes);
    for (uint32_t i = 0; i < tp * e->pp; i++)
        TRY(size_rank_slot(e, (struct comm_place){tp, e->pp, i % tp, i / tp},
                           own_bytes(e) + e->kv_bytes, out, err));
    return STATUS_OK;
}

void engine_find_shapes(struct engine *e)
{
    struct error err;
    e->shapes[0].tp = e->tp;
    for (uint32_t g = 0; g < e->program->n_kv_groups; g++) {
        e->shapes[0].n_blocks[g] = e->kv_groups[g].n_blocks;
        e->shapes[0].block_bytes[g] = (uint32_t)e->kv_groups[g].bytes_per_block;
    }
    e->n_shapes = 1;
    for (uint32_t tp = e->tp - 1; e->is_elastic && tp > 0; tp--) {
        if (e->tp % tp != 0 || e->n_shapes == ENGINE_MAX_SHAPES)
            continue;
        struct engine_shape *shape = &e->shapes[e->n_shapes];
        if (size_shape(e, tp, shape, &err) == STATUS_OK) {
            log_info("elastic_tp", "tp=%u kv_blocks=%u", tp, shape->n_blocks[0]);
            e->n_shapes++;
        } else
            log_warn("elastic_tp_not_offered", "tp=%u reason=%s", tp, log_quote(err.text));
    }
}

const struct engine_shape *engine_shape_of(const struct engine *e, uint32_t tp)
{
    for (uint32_t i = 0; i < e->n_shapes; i++)
        if (e->shapes[i].tp == tp)
            return &e->shapes[i];
    return NULL;
}

bool engine_offers(const struct engine *e, uint32_t tp)
{
    return engine_shape_of(e, tp) != NULL;
}
