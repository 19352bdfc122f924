#pragma once
/* What the worker's options say of a model, for the executor and for `cox plan`. */
#include "common/options/worker.h"
#include "worker/engine/state.h"

/* What an option says of the engine, and what no device does of what options ask for. */
struct engine_setup executor_model_setup(const struct worker_options *o);
MUST_USE enum status executor_model_check(const struct worker_options *o, struct error *err);
/* Of a CPU, beside weights that are codes or bfloat16. */
enum cpu_activations executor_activations(const struct worker_options *o);
/* Samplers use no wider registers than kernels. */
void executor_limit_sweep(const struct worker_options *o);
