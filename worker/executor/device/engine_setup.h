#pragma once
/* Converts the worker's options to an engine's setup, for the executor and for `cox plan`. */
#include "common/options/worker.h"
#include "worker/engine/state.h"

/* executor_model_setup returns the setup that the options describe. executor_model_check refuses
 * options that no device supports. */
struct engine_setup executor_model_setup(const struct worker_options *o);
MUST_USE enum status executor_model_check(const struct worker_options *o, struct error *err);
/* Returns the type of activations that a CPU uses with quantised or bfloat16 weights. */
enum cpu_activations executor_activations(const struct worker_options *o);
/* Limits samplers to the register width that the kernels use. */
void executor_limit_sweep(const struct worker_options *o);
