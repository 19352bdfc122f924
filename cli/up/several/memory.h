#pragma once
/* Divides the memory among the models of a set (memory.c). */
#include "common/base/status.h"
#include "common/base/str.h"

struct set_run;

/* Finds out what each model needs, divides the memory, and writes the results into the options of
 * the models. The table is appended to `table`, also when the models do not fit. */
MUST_USE enum status set_run_plan_memory(struct set_run *r, struct strbuf *table,
                                         struct error *err);
