#pragma once
/* The device that the options ask for. Loop's thread. */
#include "common/options/worker.h"
#include "worker/executor/executor.h"

/* Picks the device that the options ask for and opens it. STATUS_UNSUPPORTED names what this build
 * lacks. */
MUST_USE enum status executor_open(const struct worker_options *o, struct executor **out,
                                   struct error *err);
/* The node of a GPU's driver in that folder ("/dev"), into out; false: there is none. For builds
 * that could not use the GPU. */
bool executor_gpu_node(const char *folder, char *out, size_t size);
