#pragma once
/* Reports of the compute thread to the head, and the check for a lost device or peer. `ctx` is
 * the struct worker_process. */
#include "worker/compute.h"

void worker_on_done(void *ctx, const struct job_done *d);
void worker_check_peers(void *ctx); /* called once a second */
