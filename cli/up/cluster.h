#pragma once
/* A whole cluster on this machine, from the options of `cox up` until it has ended: the model is
 * brought, the processes are planned, started, watched and ended. */
#include <stdint.h>

#include "cli/sagemaker/log.h"
#include "cli/up/plan/options.h"

struct up_start {
    const char *command;            /* as it was called: up or serve */
    const char *model;              /* as it was given */
    struct up_options *options;     /* lives as long as the call; a name may be put in */
    const char *sagemaker_settings; /* of the model, for the log; NULL: none */
    uint64_t begin_ns;              /* when the command began */
};
/* The exit code of the command; stderr has what is wrong. Main thread, once in a process. */
int up_cluster_run(const struct up_start *start);
