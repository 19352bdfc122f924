#pragma once
/* Describes the CPUs of this machine as a device that runs a model. */
#include "common/options/worker.h"
#include "worker/executor/executor.h"

MUST_USE enum status executor_cpu_open(const struct worker_options *o, struct executor **out,
                                       struct error *err);
