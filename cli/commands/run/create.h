#pragma once
/* Starts a run from a file, for `cox run -f`. */
#include "common/base/status.h"

/* Runs the run file in this terminal and returns when the run has ended. */
MUST_USE enum status run_here(const char *path, const char *runs_dir, struct error *err);
