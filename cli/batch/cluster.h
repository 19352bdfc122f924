#pragma once
/* The cluster of one `cox run-batch MODEL` or `cox bench throughput`: a `cox up` below this
 * process, whose gateway listens on a socket in a folder of its own, and which ends with this
 * process however that ends. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/base/throw_away.h"
#include "common/base/status.h"

struct batch_cluster {
    pid_t pid;         /* 0: not started */
    bool has_not_come; /* the fetch of the model failed: pull_exit_code says how it ends */
    struct throw_away dir;
    char uds[108]; /* the gateway's, in it */
};

/* command: "run-batch", which fetches the model where it is missing. args: [n_args] options of cox
 * up. Returns when requests are served, or when the child has ended
 * (STATUS_INVALID: its log says why), or STATUS_CLOSED: interrupted. In each case end it. */
MUST_USE enum status batch_cluster_start(struct batch_cluster *c, const char *command,
                                         const char *model, const char *const *args, size_t n_args,
                                         struct error *err);
void batch_cluster_end(struct batch_cluster *c);
