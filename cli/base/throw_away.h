#pragma once
/* A temporary folder for one run. `cox up` keeps throw-away keys and its control socket there,
 * and `cox run-batch` keeps a socket.
 * The owner holds a flock on a file in the folder while it lives. A later run removes the
 * unlocked folders that killed owners left.
 * The folder is not in XDG_RUNTIME_DIR, because that is removed when the user logs out while the
 * cluster may go on. */
#include <stddef.h>

#include "common/base/status.h"

struct throw_away {
    char path[4096]; /* "" = no folder */
    int dir_fd, lock_fd;
};

/* Makes a folder with mode 0700 in `parent`, empty except for the lock. `what` ("keys", "up",
 * "batch" or "stream") becomes part of its name. Calls `throw_away_sweep` first. */
MUST_USE enum status throw_away_make(struct throw_away *t, const char *parent, const char *what,
                                     struct error *err);
/* Removes the folder with its keys and socket. When it holds any other file, the folder stays
 * and a warning goes to stderr. */
void throw_away_remove(struct throw_away *t);
/* Removes the folders in `parent` that dead processes of this user left. */
void throw_away_sweep(const char *parent);
