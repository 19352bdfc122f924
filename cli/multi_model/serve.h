#pragma once
/* `cox serve` with SAGEMAKER_MULTI_MODEL=true: one address in front of models that are loaded
 * and unloaded by request. Each model is a `cox serve` below this process.
 * docs/reference/sagemaker.md has the API. */

/* Runs the command and returns its exit code. The options are those of `cox up` and apply to
 * every model. */
int models_serve(int argc, char **argv);
