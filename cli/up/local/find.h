#pragma once
/* Finds clusters that `cox up` runs on this machine, by this user's control sockets in TMPDIR. */
#include <jansson.h>

#include "common/base/str.h"

enum { LOCAL_CLUSTERS_MAX = 256 };

struct local_cluster {
    char socket[256], admin[300]; /* admin: HOST:PORT that identifies the cluster */
    char name[64], model[256], url[300], state[16], log_file[512]; /* "" = from an older `cox up` */
    long long pid, uptime_s, workers, replica_ranks, max_replicas; /* max_replicas 0 = no limit */
};

/* Lists all clusters that answer within wait_ms milliseconds each, sorted by name. Returns their
 * number. The caller frees *owned_list with mem_free. */
size_t local_cluster_list(uint32_t wait_ms, struct local_cluster **owned_list);
/* Finds one cluster. `name` and `address` may be NULL, which matches any. STATUS_NOT_FOUND:
 * there is none. STATUS_INVALID: several match; the text names them. */
MUST_USE enum status local_cluster_find(const char *name, const char *address,
                                        struct local_cluster *out, struct error *err);
/* Sends a request. An answer other than 200 is an error with the answer's text. */
MUST_USE enum status local_cluster_ask(const struct local_cluster *c, const char *path,
                                       const char *body, struct strbuf *answer, struct error *err);
/* Returns the process names in the first column of its log; NULL when it does not answer. The
 * caller owns the JSON. */
json_t *local_cluster_processes(const struct local_cluster *c);
/* Returns false when its socket is gone or nobody answers there. */
bool local_cluster_is_there(const struct local_cluster *c);
/* Returns the folder of the sockets: TMPDIR, or /tmp. */
const char *local_cluster_folder(void);
