#pragma once
/* The processes below a keeper. Each that it starts is a session of its own, with its output in the
 * keeper's pipe; what those leave behind becomes the keeper's child (PR_SET_CHILD_SUBREAPER).
 * Single thread. */
#include <sys/types.h>

#include "cli/run/store.h"

struct run_spawn {
    const char *const *argv;
    const char *cwd;       /* NULL: the keeper's */
    char *const *env;      /* whole */
    int out_fd, stdout_fd; /* stdout_fd -1: out_fd, too */
    int death_signal;      /* what it gets when the keeper is killed */
};
MUST_USE enum status run_spawn(const struct run_spawn *o, pid_t *out, struct error *err);
/* A signal to all below this process but the trees of other runs' keepers; how many got it. */
size_t run_children_kill(const struct run_store *s, int signum);
/* To all of a run whose keeper was killed, which are known by COX_RUN_ID in their environment. */
size_t run_leftovers_kill(const struct run_store *s, const char *id, int signum);
