#pragma once
/* Manages the sequences of a scheduler, with their lists, slots and blocks. In a step only
 * seq_make_room allocates. */
#include "head/scheduler/state.h"

/* Takes a sequence with tables from the slab. The sequence is in no list yet. Returns NULL when
 * memory is missing. */
struct seq *seq_new(struct scheduler *s, struct request *r);
void seq_free(struct scheduler *s, struct seq *x);
/* Reserves the memory that the sequence needs to run. Returns false when memory is missing. */
MUST_USE bool seq_make_room(struct scheduler *s, struct seq *x);
/* These functions keep the list of all sequences, in order of scheduler_add. */
void sequences_append(struct scheduler *s, struct seq *x);
void sequences_remove(struct scheduler *s, struct seq *x);
/* Appends a sequence to the list of ended sequences, which are popped in order. */
void sequences_append_ended(struct scheduler *s, struct seq *x);

void running_insert(struct scheduler *s, struct seq *x);
/* Returns the last running sequence in order of service, or NULL. */
struct seq *running_last(struct scheduler *s);

/* Sets the number of prompt tokens that are still to be computed. */
void seq_set_left(struct scheduler *s, struct seq *x, uint32_t n);
/* Updates the sequence's is_prompt and n_left. Call it after n_scheduled or n_total has changed. */
void seq_set_prompt(struct scheduler *s, struct seq *x, bool is_prompt);
/* Preempts a running sequence: it returns to the queue, and its blocks are released. Tokens in
 * flight are still accepted. */
void seq_preempt(struct scheduler *s, struct seq *x);
/* Ends a sequence. It stays in the scheduler until it is popped. */
void seq_end(struct scheduler *s, struct seq *x, enum finish_reason why);
/* Removes a sequence from its list, slot, blocks and the steps in flight. The sequence still
 * counts in n_seqs. */
void seq_detach(struct scheduler *s, struct seq *x);
