#pragma once
/* The keeper: the one process of a run that starts all others, writes its log and its state, and
 * ends it. In the background it is a process of its own session; with `cox run -f` it is the
 * command. */
#include "cli/run/start.h"

/* In the background: returns when the keeper has said so in state.json. */
MUST_USE enum status run_start_keeper(struct run_start *r, struct error *err);
/* In this process, until the run has ended; *ended is how. */
MUST_USE enum status run_keep(struct run_start *r, enum run_status *ended, struct error *err);
