#pragma once
/* Ends a worker. Either the worker was told to end and hands its work over first, or it cannot
 * go on. */
struct worker_process;
/* Ends the worker. The first call hands the work over, then stops the loop. The second call
 * stops the loop at once. `signal_name` names the cause in the head's events. */
void worker_stop(struct worker_process *w, const char *signal_name);
void worker_send_drain_wish(struct worker_process *w);
/* Ends the process when its device is lost, which is permanent for a process. The head is told
 * why, and the supervisor starts a new process. */
void worker_look_for_loss(struct worker_process *w);
/* Ends the process when the compute thread waits for a KV transfer of an old epoch that does not
 * end. */
void worker_look_for_stuck_transfer(struct worker_process *w);
