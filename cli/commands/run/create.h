#pragma once
/* The start of a run from a file, for `cox run -f`. */
#include "common/base/status.h"

/* `cox run -f`: in this terminal, until it has ended. */
MUST_USE enum status run_here(const char *path, const char *runs_dir, struct error *err);
