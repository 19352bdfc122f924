#pragma once
/* Describes a run that is about to start, or that runs. */
#include <jansson.h>

#include "cli/run/source.h"
#include "cli/run/store.h"

struct run_start {
    const struct run_source *source;
    const char *path; /* path of the run file, for messages */
    const struct run_store *store;
    json_t *taken; /* values for `env` from the starter's environment, by name; borrowed */
    bool in_foreground;
    char id[RUN_ID_DIGITS + 1], folder[RUN_PATH_BYTES];
};
