#pragma once
/* Makes and removes a temporary folder for one run. `cox up` keeps throw-away keys and its
 * control socket there, and `cox run-batch` keeps a socket.
 * The owning process holds a flock on a file in the folder as long as the process runs. A later
 * run removes the unlocked folders of killed processes.
 * The folder is not in XDG_RUNTIME_DIR. That directory is removed when the user logs out, and
 * the cluster may run longer. */
#include <stddef.h>

#include "common/base/status.h"

struct throw_away {
    char path[4096]; /* path of the folder; "" = no folder */
    int dir_fd, lock_fd;
};

/* Makes a folder with mode 0700 in `parent`, empty except for the lock. `what` ("keys", "up",
 * "batch" or "stream") becomes part of the folder's name. The function first calls
 * `throw_away_sweep`. */
MUST_USE enum status throw_away_make(struct throw_away *t, const char *parent, const char *what,
                                     struct error *err);
/* Removes the folder with its keys and socket. When the folder contains any other file, the
 * folder stays and a warning goes to stderr. */
void throw_away_remove(struct throw_away *t);
/* Removes the folders in `parent` whose owner, a process of this user, has ended. */
void throw_away_sweep(const char *parent);
