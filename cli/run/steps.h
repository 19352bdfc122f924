#pragma once
/* Implements the steps of a keeper, one after another, each as child processes (step.h). Only
 * cli/run includes this header. */
#include "cli/run/step.h"

/* Writes root/PATH to `out` and makes the folders above the last component. With `with_itself`,
 * the last component is made too. */
MUST_USE enum status run_place(struct run_keeper *k, const char *path, bool with_itself,
                               char out[RUN_PATH_BYTES], struct error *err);
MUST_USE enum status run_import_all(struct run_keeper *k, struct error *err);
MUST_USE enum status run_pull_model(struct run_keeper *k, struct error *err);
MUST_USE enum status run_link_volumes(struct run_keeper *k, struct error *err);
MUST_USE enum status run_export_all(struct run_keeper *k, struct error *err);
/* Builds the environment: the values of `env`, the variables of the starting command, and the
 * keeper's own variables. */
void run_build_env(struct run_keeper *k);
