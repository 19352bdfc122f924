#pragma once
/* Ends a worker process, either on a signal or because it cannot continue. On a signal, the head
 * first moves the worker's requests to other replicas. */
struct worker_process;
/* Ends the worker. The first call drains it and then stops the loop. The second call stops the
 * loop at once. `signal_name` names the cause in the head's events. */
void worker_stop(struct worker_process *w, const char *signal_name);
void worker_send_drain_wish(struct worker_process *w);
/* Ends the process when its device is lost, which is permanent for a process. The worker sends
 * the head the reason, and the supervisor starts a new process. */
void worker_look_for_loss(struct worker_process *w);
/* Ends the process when the compute thread waits for a KV transfer of an old epoch that does not
 * end. */
void worker_look_for_stuck_transfer(struct worker_process *w);
