#pragma once
/* The keeper: the one process of a run that starts all others, writes its log and its state, and
 * ends it. In the background it is a process of its own session; with `cox run -f` it is the
 * command. */
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

/* A folder with copy and state "pending". */
MUST_USE enum status run_prepare(struct run_start *r, struct error *err);
/* In the background: returns when the keeper has said so in state.json. */
MUST_USE enum status run_start_keeper(struct run_start *r, struct error *err);
/* In this process, until the run has ended; *ended is how. */
MUST_USE enum status run_keep(struct run_start *r, enum run_status *ended, struct error *err);
