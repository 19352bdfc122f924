#pragma once
/* How a worker ends: told to, with its work handed over first, or because it cannot go on. */
struct worker_process;
/* First call: hand the work over, then stop the loop. Second: stop at once. signal_name: what asks
 * for it, as the head's events say it. */
void worker_stop(struct worker_process *w, const char *signal_name);
void worker_send_drain_wish(struct worker_process *w);
/* A lost device is lost for the process: it ends, the head hears why, and its starter starts it
 * anew. */
void worker_look_for_loss(struct worker_process *w);
/* The compute thread waits for a transfer of an epoch that is over, and may for ever. */
void worker_look_for_stuck_transfer(struct worker_process *w);
