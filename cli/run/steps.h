#pragma once
/* Private to cli/run: what a keeper does one after the other, each as steps (step.h). */
#include "cli/run/step.h"

/* root/PATH; its folders are made as far as `parents`. */
MUST_USE enum status run_place(struct run_keeper *k, const char *path, bool with_itself,
                               char out[RUN_PATH_BYTES], struct error *err);
MUST_USE enum status run_import_all(struct run_keeper *k, struct error *err);
MUST_USE enum status run_pull_model(struct run_keeper *k, struct error *err);
MUST_USE enum status run_link_volumes(struct run_keeper *k, struct error *err);
MUST_USE enum status run_export_all(struct run_keeper *k, struct error *err);
/* env's, the starter's, and our own. */
void run_build_env(struct run_keeper *k);
