#pragma once
/* What an executor says of itself in Hello and in the start-up memory table. */
#include "worker/executor/state.h"

/* Fills x->info, once, when the model is loaded. */
void executor_fill_info(struct executor_model *x, const struct worker_options *o);
