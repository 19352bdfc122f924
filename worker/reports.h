#pragma once
/* What the compute thread reports, and a look at what may be lost. ctx is the struct worker. */
#include "worker/compute.h"

void worker_on_done(void *ctx, const struct job_done *d);
void worker_check_peers(void *ctx); /* once a second */
