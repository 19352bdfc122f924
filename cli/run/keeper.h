#pragma once
/* Starts the keeper of a run: the one process that starts all other processes, writes the run's
 * log and state, and ends the run. In the background, the keeper has a session of its own. With
 * `cox run -f`, the command itself is the keeper. */
#include "cli/run/start.h"

/* Starts the keeper in the background. Returns when state.json names the keeper. */
MUST_USE enum status run_start_keeper(struct run_start *r, struct error *err);
/* Runs the keeper in this process until the run has ended. *ended is the final status. */
MUST_USE enum status run_keep(struct run_start *r, enum run_status *ended, struct error *err);
