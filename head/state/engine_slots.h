#pragma once
/* Keeps all engine slots together: the list of live ones, and sums over them and over freed
 * schedulers. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* These functions keep the list of live slots, in ascending order. */
void engine_slots_add_live(struct head_core *h, uint32_t index);
void engine_slots_remove_live(struct head_core *h, uint32_t index);
/* Adds the counters of a scheduler that is about to be freed to the core's sums of freed
 * schedulers. */
void engine_slots_retire(struct head_core *h, const struct scheduler *s);
/* Updates the core's sums with the engine slot's numbers. */
void engine_slots_count(struct head_core *h, struct engine_slot *l);

void engine_slots_totals(const struct head_core *h, struct scheduler_stats *out);
/* Writes the accepted draft tokens of all schedulers, by position, to out[SCHEDULER_MAX_DRAFT]. */
void engine_slots_accepted(const struct head_core *h, uint64_t *out);
/* Returns true when all serving replicas support prompt_logprobs. */
bool engine_slots_give_prompt_logprobs(const struct head_core *h);
