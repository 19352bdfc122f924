#pragma once
/* Blocks that are kept for requests which move between replicas: what the other files of the
 * scheduler need to know of them. Moves themselves begin and end by scheduler.h. */
#include "head/scheduler/state.h"

void moves_of_gone(struct scheduler *s, const struct request *r); /* gone, or come in */
/* The oldest import that is whole is let go. False: there is none. */
bool moves_reclaim(struct scheduler *s);
void moves_forget(struct scheduler *s); /* the blocks are all free, or gone */
void moves_count_owners(const struct scheduler *s, uint32_t i_group, uint32_t *owners);
