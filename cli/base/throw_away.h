#pragma once
/* A folder for one run: of throw-away keys and the control socket (`cox up`), or of a socket (`cox
 * run-batch`). A file in it is locked (flock) while its owner lives, so that the next one can tell
 * what a killed owner left behind, and removes it. Not in XDG_RUNTIME_DIR: that goes when its user
 * logs out, and the cluster need not. */
#include <stddef.h>

#include "common/base/status.h"

struct throw_away {
    char path[4096]; /* "": none */
    int dir_fd, lock_fd;
};

/* Makes a folder in parent, 0700, empty but for the lock. what: "keys", "up", "batch", "stream", of
 * which its name tells people. Sweeps first. */
MUST_USE enum status throw_away_make(struct throw_away *t, const char *parent, const char *what,
                                     struct error *err);
/* Removes the folder with keys and socket; whatever else is there keeps it, with a warning on
 * stderr. */
void throw_away_remove(struct throw_away *t);
/* Removes what dead owners of this user left in parent. */
void throw_away_sweep(const char *parent);
