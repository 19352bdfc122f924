#pragma once
/* The worker's options as an engine takes them, for the executor and for `cox plan`. */
#include "common/options/worker.h"
#include "worker/engine/state.h"

/* The engine that the options describe. The check refuses what no device can do. */
struct engine_setup executor_model_setup(const struct worker_options *o);
MUST_USE enum status executor_model_check(const struct worker_options *o, struct error *err);
/* How a CPU keeps activations beside weights that are codes or bfloat16. */
enum cpu_activations executor_activations(const struct worker_options *o);
/* Samplers use no wider registers than kernels. */
void executor_limit_sweep(const struct worker_options *o);
