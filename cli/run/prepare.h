#pragma once
/* The folder of a run before its keeper starts. */
#include "cli/run/start.h"

/* Makes r->folder and r->id: the folder with a copy of the file, and the state "pending". */
MUST_USE enum status run_prepare(struct run_start *r, struct error *err);
