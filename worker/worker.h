#pragma once
/* Declares the worker of one rank. `struct worker_process` connects the link to the head, the
 * rank's state machine, the compute thread and the admin HTTP port. The state machine makes the
 * decisions. The struct borrows loop, executor and options. All functions are called on the loop
 * thread. */
#include "worker/worker_setup.h"

struct worker_process;
MUST_USE enum status worker_start(const struct worker_setup *s, struct worker_process **out,
                                  struct error *err);
/* Returns true when no drain is in progress, and the worker's replica has served or the worker
 * is a spare (docs/develop/protocol.md, "Readiness"). */
bool worker_is_ready(const struct worker_process *w);
const char *worker_why_not_ready(const struct worker_process *w);
/* Returns the reason why the head refuses this worker for good, which stopped the loop. "" = not
 * refused. */
const char *worker_refusal(const struct worker_process *w);
/* Returns the reason why the process must end, with exit code 1 and without worker_free: its
 * device is lost or its compute thread is stuck. "" = none. */
const char *worker_failure(const struct worker_process *w);
/* Returns true when a restart would fail in the same way. The process then ends with exit code 2
 * and is not restarted. */
bool worker_failed_for_good(const struct worker_process *w);
/* Ends the threads after the loop has ended. Returns false when a thread does not end in time,
 * such as while a shard is being loaded, which cannot be interrupted. The process should then
 * end without worker_free, which would wait for the thread. */
bool worker_end(struct worker_process *w);
void worker_free(struct worker_process *w); /* `w` may be NULL */
