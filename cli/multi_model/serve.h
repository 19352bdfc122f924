#pragma once
/* Implements `cox serve` with SAGEMAKER_MULTI_MODEL=true: one address serves models that are
 * loaded and unloaded by request. Each model is a `cox serve` that this process starts.
 * docs/reference/sagemaker.md has the API. */

/* Runs the command and returns its exit code. The options are those of `cox up` and apply to
 * every model. */
int models_serve(int argc, char **argv);
