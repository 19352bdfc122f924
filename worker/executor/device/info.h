#pragma once
/* Describes the executor itself, for Hello and the memory table at the start. */
#include "worker/executor/state.h"

/* Fills x->info, once, after the model is loaded. */
void executor_fill_info(struct executor_model *x, const struct worker_options *o);
