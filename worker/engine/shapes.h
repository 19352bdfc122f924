#pragma once
/* Finds the smaller TPs that an engine could serve as a rank (docs/develop/recovery.md, "Fewer
 * ranks than TP"). */
#include "worker/engine/state.h"

/* Writes to *out the bytes that the largest rank slot of the full replica needs more than this
 * engine's rank slot, without the KV cache. Call it between engine_measure and engine_load. */
MUST_USE enum status engine_rank_slots_more(const struct engine *e, uint64_t *out,
                                            struct error *err);
/* Fills e->shapes after the KV cache is sized: the full TP, then smaller TPs that fit into the
 * same memory. */
void engine_find_shapes(struct engine *e);
/* Returns the shape of that TP, or NULL when the engine does not offer it. */
const struct engine_shape *engine_shape_of(const struct engine *e, uint32_t tp);
/* Returns true when the loaded engine can take ranks of that TP. */
bool engine_offers(const struct engine *e, uint32_t tp);
