#pragma once
/* Opens an executor that runs a model, on any device. */
#include "worker/executor/state.h"

/* Opens the model on the device in `found`. NULL selects the CPU. */
MUST_USE enum status executor_model_open(const struct executor_device *d,
                                         const struct executor_found *found,
                                         const struct worker_options *o, struct executor **out,
                                         struct error *err);
