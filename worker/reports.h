#pragma once
/* The compute thread's reports, and the look for a lost device or peer. ctx is the struct
 * worker_process.
 */
#include "worker/compute.h"

void worker_on_done(void *ctx, const struct job_done *d);
void worker_check_peers(void *ctx); /* once a second */
