#pragma once
/* Opens the folder in which the workers of one user find weights that other processes of this
 * host hold (worker/share). The folder has only small files; the weights are not in it. */
#include "common/base/status.h"

/* Returns false when the option --weights-share turns sharing off. */
bool share_folder_wanted(const char *option);
/* Opens the folder, and makes it if it is missing: coxswain-weights-UID, with mode 0700, in
 * /dev/shm for `option` "auto", else in the folder that `option` names. The caller closes *fd.
 * STATUS_DENIED: the folder belongs to another user, or other users may use it. STATUS_IO: it
 * cannot be made or opened. */
MUST_USE enum status share_folder_open(const char *option, int *fd, struct error *err);
