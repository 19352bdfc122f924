#pragma once
/* The sequences of a scheduler, and the lists, slots and blocks that they have. Steps allocate
 * nothing but in seq_make_room. */
#include "head/scheduler/state.h"

/* With tables, from the slab; in no list yet. NULL: no memory. */
struct seq *seq_new(struct scheduler *s, struct request *r);
void seq_free(struct scheduler *s, struct seq *x);
MUST_USE bool seq_make_room(struct scheduler *s, struct seq *x); /* to run; false: no memory */
/* The list of all, in order of scheduler_add. */
void sequences_append(struct scheduler *s, struct seq *x);
void sequences_remove(struct scheduler *s, struct seq *x);
void sequences_append_ended(struct scheduler *s, struct seq *x); /* until it is popped */

void running_insert(struct scheduler *s, struct seq *x);
/* The last in order of service; NULL: none. */
struct seq *running_last(struct scheduler *s);

/* Prompt tokens that are still to be computed of it. */
void seq_set_left(struct scheduler *s, struct seq *x, uint32_t n);
/* After n_scheduled or n_total moved: does it still compute its prompt, and how much of it? */
void seq_set_prompt(struct scheduler *s, struct seq *x, bool is_prompt);
/* Running → waiting; its blocks are released, tokens in flight will still be accepted. */
void seq_preempt(struct scheduler *s, struct seq *x);
/* Ends it where it is: ours until it is popped. */
void seq_end(struct scheduler *s, struct seq *x, enum finish_reason why);
/* Out of its list, slot, blocks and the steps in flight; it still counts. */
void seq_detach(struct scheduler *s, struct seq *x);
