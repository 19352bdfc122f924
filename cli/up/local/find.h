#pragma once
/* Finds clusters that `cox up` runs on this machine, by the control sockets of this user in TMPDIR.
 */
#include <jansson.h>

#include "common/base/str.h"

enum { LOCAL_CLUSTERS_MAX = 256 };

struct local_cluster {
    char socket[256], admin[300]; /* admin: HOST:PORT by which it is known */
    char name[64], model[256], url[300], state[16], log_file[512]; /* "": an older `cox up` */
    long long pid, uptime_s, workers, replica_ranks, max_replicas; /* max_replicas 0: no bound */
};

/* All that answer, by name; the caller frees *owned_list (mem_free). wait_ms: for each to answer.
 */
size_t local_cluster_list(uint32_t wait_ms, struct local_cluster **owned_list);
/* name and address NULL: any. STATUS_NOT_FOUND: none; STATUS_INVALID: several, which the text
 * names. */
MUST_USE enum status local_cluster_find(const char *name, const char *address,
                                        struct local_cluster *out, struct error *err);
/* An answer other than 200 is its own text as the error. */
MUST_USE enum status local_cluster_ask(const struct local_cluster *c, const char *path,
                                       const char *body, struct strbuf *answer, struct error *err);
/* The names in the first column of its log; NULL: it does not say. The caller's to free. */
json_t *local_cluster_processes(const struct local_cluster *c);
/* False once its socket is gone or nobody answers there. */
bool local_cluster_is_there(const struct local_cluster *c);
/* The folder of the sockets: TMPDIR, or /tmp. */
const char *local_cluster_folder(void);
