#pragma once
/* Starts and ends the processes of a run for its keeper (keeper.h). Each process that the keeper
 * starts has a session of its own and writes to the keeper's pipe. A process whose parent ends
 * becomes the keeper's child (PR_SET_CHILD_SUBREAPER). Only one thread calls these functions. */
#include <sys/types.h>

#include "cli/run/store.h"

struct run_spawn {
    const char *const *argv;
    const char *cwd;  /* working folder; NULL = the keeper's folder */
    char *const *env; /* the whole environment of the process */
    /* out_fd: receives stdout and stderr; stdout_fd: -1 = stdout also goes to out_fd */
    int out_fd, stdout_fd;
    int death_signal; /* signal that the process gets when the keeper is killed */
};
MUST_USE enum status run_spawn(const struct run_spawn *o, pid_t *out, struct error *err);
/* Sends a signal to all processes below this one, except those below other runs' keepers.
 * Returns how many processes got the signal. */
size_t run_children_kill(const struct run_store *s, int signum);
/* Sends a signal to all processes of a run whose keeper was killed. COX_RUN_ID in their
 * environment identifies these processes. Returns how many processes got the signal. */
size_t run_leftovers_kill(const struct run_store *s, const char *id, int signum);
