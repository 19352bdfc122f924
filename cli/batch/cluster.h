#pragma once
/* Starts and ends the cluster of one `cox run-batch MODEL` or `cox bench throughput`. The
 * cluster is a `cox up` that runs as a child of this process. The cluster's gateway listens on a
 * socket in a temporary folder. The child ends when this process ends, even when this process is
 * killed. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/base/throw_away.h"
#include "common/base/status.h"

struct batch_cluster {
    pid_t pid; /* process number of the `cox up`; 0 = not started */
    /* the model could not be fetched; `pull_exit_code` returns the exit code for it */
    bool has_not_come;
    struct throw_away dir;
    char uds[108]; /* path of the gateway's socket in `dir` */
};

/* Starts the cluster and returns when the cluster serves requests. `command` is the name for
 * messages, such as "run-batch". A missing model is fetched first. `args` [n_args] are options
 * of `cox up`.
 * STATUS_INVALID: the child has ended. Its log says why.
 * STATUS_CLOSED: a signal interrupted the start.
 * The caller calls `batch_cluster_end` in every case. */
MUST_USE enum status batch_cluster_start(struct batch_cluster *c, const char *command,
                                         const char *model, const char *const *args, size_t n_args,
                                         struct error *err);
void batch_cluster_end(struct batch_cluster *c);
