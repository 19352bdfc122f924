#pragma once
/* `cox serve` with SAGEMAKER_MULTI_MODEL=true: one address in front of models that are loaded and
 * unloaded by request, each of them a `cox serve` of its own below this process.
 * docs/reference/sagemaker.md has the API. */

/* As a subcommand. Options are those of cox up, and are every model's. */
int models_serve(int argc, char **argv);
