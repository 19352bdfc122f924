#pragma once
/* Makes the folder of a run before its keeper starts. */
#include "cli/run/start.h"

/* Makes the folder with a copy of the run file and the state "pending". It sets r->folder and
 * r->id. */
MUST_USE enum status run_prepare(struct run_start *r, struct error *err);
