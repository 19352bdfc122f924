#pragma once
/* One rank: wires the head's link, the rank's state machine, the compute thread and the admin HTTP
 * port; decides nothing itself. Borrows loop, executor and options; everything on the loop's
 * thread. */
#include "worker/worker_setup.h"

struct worker_process;
MUST_USE enum status worker_start(const struct worker_setup *s, struct worker_process **out,
                                  struct error *err);
/* Its replica has served, or it is a spare, and no drain is on (docs/develop/protocol.md,
 * "Readiness"). */
bool worker_is_ready(const struct worker_process *w);
const char *worker_why_not_ready(const struct worker_process *w);
/* Why the loop was stopped though nobody asked: the head takes this worker never. "": it does. */
const char *worker_refusal(const struct worker_process *w);
/* Why the process has to end, with exit code 1 and without worker_free: its device is lost, or its
 * compute thread is stuck. "": it has not. */
const char *worker_failure(const struct worker_process *w);
/* It would fail so each time: exit code 2, not to be started anew. */
bool worker_failed_for_good(const struct worker_process *w);
/* After the loop has ended. False: a shard is being read and nothing interrupts that; the process
 * should end without worker_free, which waits for it. */
bool worker_end(struct worker_process *w);
void worker_free(struct worker_process *w); /* NULL is fine */
