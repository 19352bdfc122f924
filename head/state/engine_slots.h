#pragma once
/* The engine slots together: which of them live, and sums over them and over the schedulers that
 * are gone. Loop thread. */
#include "head/state/head_core.h"

/* The list of live ones, ascending. */
void engine_slots_add_live(struct head_core *h, uint32_t index);
void engine_slots_remove_live(struct head_core *h, uint32_t index);
/* A scheduler is about to go: its counters stay in the sums. */
void engine_slots_retire(struct head_core *h, const struct scheduler *s);
/* Brings the core's sums up to what the engine slot holds. */
void engine_slots_count(struct head_core *h, struct engine_slot *l);

void engine_slots_totals(const struct head_core *h, struct scheduler_stats *out);
void engine_slots_accepted(const struct head_core *h, uint64_t *out); /* [SCHEDULER_MAX_DRAFT] */
/* All replicas that serve can. */
bool engine_slots_give_prompt_logprobs(const struct head_core *h);
