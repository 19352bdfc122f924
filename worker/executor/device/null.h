#pragma once
/* Opens the null device, which checks and answers plans and computes nothing
 * (docs/develop/null-worker.md). */
#include "common/options/worker.h"
#include "worker/executor/executor.h"

MUST_USE enum status executor_null_open(const struct worker_options *o, struct executor **out,
                                        struct error *err);
