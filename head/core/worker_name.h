#pragma once
/* Finds the worker that an operator names (POST /api/drain, `cox drain`). A name is the worker's
 * 16 hex digits, its node or its ordinal. A node (for a pod: the pod's name) names a worker only
 * when no other worker is there. An ordinal is "3" or "worker-3", as in `cox up`. A node's name
 * takes precedence over an ordinal. */
#include "common/base/str.h"
#include "head/cluster/cluster.h"

/* Returns STATUS_NOT_FOUND when no worker has this name. Returns STATUS_INVALID when several
 * workers do; the text then names them. */
MUST_USE enum status worker_by_name(const struct cluster *c, struct str name, struct worker **out,
                                    struct error *err);
