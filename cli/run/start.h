#pragma once
/* Describes a run that is starting or running. */
#include <jansson.h>

#include "cli/run/source.h"
#include "cli/run/store.h"

struct run_start {
    const struct run_source *source;
    const char *path; /* path of the run file, for messages */
    const struct run_store *store;
    /* values for `env` from the environment of the starting command, by name; borrowed */
    json_t *taken;
    bool in_foreground;
    char id[RUN_ID_DIGITS + 1], folder[RUN_PATH_BYTES];
};
