#pragma once
/* A run that is about to be started, or is running. */
#include <jansson.h>

#include "cli/run/source.h"
#include "cli/run/store.h"

struct run_start {
    const struct run_source *source;
    const char *path; /* of the file, for people */
    const struct run_store *store;
    json_t *taken; /* what env took of the starter's environment: name → value; borrowed */
    bool in_foreground;
    char id[RUN_ID_DIGITS + 1], folder[RUN_PATH_BYTES];
};
