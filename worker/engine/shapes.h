#pragma once
/* The ranks of smaller TPs that an engine could take (docs/develop/recovery.md, "Fewer ranks than
 * TP").
 */
#include "worker/engine/state.h"

/* Between the measure and the load. */
/* Bytes by which another rank slot of the whole replica takes more than this one, KV cache apart.
 */
MUST_USE enum status engine_rank_slots_more(const struct engine *e, uint64_t *out,
                                            struct error *err);
/* The KV cache is sized: the whole TP, and smaller ones that fit into what was sized for it. */
void engine_find_shapes(struct engine *e);
/* NULL: no such TP. */
const struct engine_shape *engine_shape_of(const struct engine *e, uint32_t tp);
/* It is loaded: could it take ranks of that TP? */
bool engine_offers(const struct engine *e, uint32_t tp);
