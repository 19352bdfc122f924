#pragma once
/* Opens the device that the options select. All functions run on the loop thread. */
#include "common/options/worker.h"
#include "worker/executor/executor.h"

/* Opens the device that the options select. The text of STATUS_UNSUPPORTED names the part that
 * this build lacks. */
MUST_USE enum status executor_open(const struct worker_options *o, struct executor **out,
                                   struct error *err);
/* Writes to `out` the path of a GPU driver's device node in `folder` ("/dev"). Returns false
 * when there is none. It is for builds that cannot use the GPU. */
bool executor_gpu_node(const char *folder, char *out, size_t size);
