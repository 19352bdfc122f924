#pragma once
/* Runs the cluster of one `cox up` on this machine: it fetches the model, then plans, starts,
 * watches and ends the processes. */
#include <stdint.h>

#include "cli/sagemaker/log.h"
#include "cli/up/plan/options.h"
#include "cli/up/set/read.h"

struct up_start {
    const char *command; /* command's name: up or serve */
    const char *model;   /* MODEL as the user gave it; NULL = the models in `models` */
    const struct set_input *models;
    struct up_options *options; /* options, which outlive the call; a served name may be added */
    /* the model's settings in DJL's form, for the log; NULL = none */
    const char *sagemaker_settings;
    uint64_t begin_ns; /* start time of the command */
};
/* Runs the cluster until its end. Returns the command's exit code. Errors are printed to stderr.
 * The main thread calls this function, once per process. */
int up_cluster_run(const struct up_start *start);
