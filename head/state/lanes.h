#pragma once
/* The lanes together: which of them live, and sums over them and over the schedulers that are gone.
 * Loop thread. */
#include "head/state/head_core.h"

/* The list of live ones, ascending. */
void lanes_add_live(struct head_core *h, uint32_t index);
void lanes_remove_live(struct head_core *h, uint32_t index);
/* A scheduler is about to go: its counters stay in the sums. */
void lanes_retire(struct head_core *h, const struct scheduler *s);
/* Brings the core's sums up to what the lane holds. */
void lanes_count(struct head_core *h, struct lane *l);

void lanes_totals(const struct head_core *h, struct scheduler_stats *out);
void lanes_accepted(const struct head_core *h, uint64_t *out); /* [SCHEDULER_MAX_DRAFT] */
/* All groups that serve can. */
bool lanes_score_prompts(const struct head_core *h);
