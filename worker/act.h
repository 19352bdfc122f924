#pragma once
/* Carries out the actions that the rank's state machine returns, and sends the answers that
 * follow from them. */
#include "worker/link/rank_state.h"

struct worker_process;
/* Carries out `action`. `m` is the message that caused it; NULL after the end of an abort. */
void worker_act(struct worker_process *w, enum rank_action action, const struct msg *m);
void worker_send_aborted(struct worker_process *w, uint64_t term_epoch);
void worker_send_formed(struct worker_process *w, uint64_t term_epoch, enum status status,
                        const char *text);
/* Tells the head the level at which this worker sleeps now, and why it is not the ordered one. */
void worker_send_slept(struct worker_process *w, enum status status, const char *text);
void worker_send_gap(struct worker_process *w, uint64_t got_step, const char *text);
