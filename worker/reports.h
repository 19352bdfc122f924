#pragma once
/* Sends the compute thread's reports to the head, and checks for a lost device or peer. `ctx` is
 * the struct worker_process. */
#include "worker/compute.h"

void worker_on_done(void *ctx, const struct job_done *d);
/* Checks for lost peers, a lost device and a stuck KV transfer. Call it once a second. */
void worker_check_peers(void *ctx);
