#pragma once
/* Runs a whole cluster on this machine, from the options of `cox up` until its end: the model is
 * fetched; the processes are planned, started, watched and ended. */
#include <stdint.h>

#include "cli/sagemaker/log.h"
#include "cli/up/plan/options.h"

struct up_start {
    const char *command;            /* command's name: up or serve */
    const char *model;              /* MODEL as given */
    struct up_options *options;     /* outlives the call; a served name may be added */
    const char *sagemaker_settings; /* the model's settings, for the log; NULL = none */
    uint64_t begin_ns;              /* start time of the command */
};
/* Returns the command's exit code; errors are printed to stderr. Main thread, once per process. */
int up_cluster_run(const struct up_start *start);
