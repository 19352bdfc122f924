#pragma once
/* The worker that a person means by a name (POST /api/drain, `cox drain`): its 16 hex digits, its
 * node when there is one worker on it (of a pod that is the pod's name), or its ordinal, "3" or
 * "worker-3" as `cox up` calls it. A node's name counts before an ordinal. */
#include "common/base/str.h"
#include "head/cluster/cluster.h"

/* STATUS_NOT_FOUND: nobody is called so; STATUS_INVALID: several are, and the text names them. */
MUST_USE enum status worker_by_name(const struct cluster *c, struct str name, struct worker **out,
                                    struct error *err);
