#pragma once
/* Keeps blocks for requests that move between replicas. These functions are for the other files
 * of the scheduler. scheduler.h has the functions that begin and end a move. */
#include "head/scheduler/state.h"

/* Frees r's complete imports. Call it when `r` has ended or is admitted. */
void moves_of_gone(struct scheduler *s, const struct request *r);
/* Frees the oldest complete import. Returns false when there is none. */
bool moves_reclaim(struct scheduler *s);
/* Removes all moves. Call it when the blocks of all moves are free or gone. */
void moves_forget(struct scheduler *s);
void moves_count_owners(const struct scheduler *s, uint32_t i_group, uint32_t *owners);
