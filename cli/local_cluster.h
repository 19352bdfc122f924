#pragma once
/* Finds a cluster that `cox up` runs on this machine, by the control sockets of this user in
 * TMPDIR.
 */
#include "common/base/str.h"

struct local_cluster {
    char socket[256], admin[300]; /* admin: HOST:PORT by which it is known */
    long long workers, group;
};

/* address NULL: the only one there is. STATUS_NOT_FOUND: none; STATUS_INVALID: several, which the
 * text names. */
MUST_USE enum status local_cluster_find(const char *address, struct local_cluster *out,
                                        struct error *err);
/* An answer other than 200 is its own text as the error. */
MUST_USE enum status local_cluster_ask(const struct local_cluster *c, const char *path,
                                       const char *body, struct strbuf *answer, struct error *err);
