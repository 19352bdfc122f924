#pragma once
/* Finds clusters that `cox up` runs on this machine, by this user's control sockets in TMPDIR. */
#include <jansson.h>

#include "common/base/str.h"

enum { LOCAL_CLUSTERS_MAX = 256 };

struct local_cluster {
    char socket[256], admin[300]; /* admin: HOST:PORT that identifies the cluster */
    /* a string is "" when an older `cox up` does not send it */
    char name[64], model[256], url[300], state[16], log_file[512];
    long long pid, uptime_s, workers, replica_ranks, max_replicas; /* max_replicas 0 = no limit */
};

/* Lists all clusters that answer within wait_ms milliseconds each, sorted by name. Returns the
 * number of clusters. The caller frees *owned_list with mem_free. */
size_t local_cluster_list(uint32_t wait_ms, struct local_cluster **owned_list);
/* Finds one cluster. `name` and `address` may be NULL, which matches any. STATUS_NOT_FOUND:
 * there is no such cluster. STATUS_INVALID: several clusters match; the text names them. */
MUST_USE enum status local_cluster_find(const char *name, const char *address,
                                        struct local_cluster *out, struct error *err);
/* Sends a request to the cluster's control socket. A status other than 200 is an error with the
 * answer's text: STATUS_NOT_FOUND for 404, STATUS_EXISTS for 409, otherwise STATUS_INVALID. */
MUST_USE enum status local_cluster_ask(const struct local_cluster *c, const char *path,
                                       const char *body, struct strbuf *answer, struct error *err);
/* Returns the process names in the first column of the cluster's log; NULL when the cluster does
 * not answer. The caller owns the JSON. */
json_t *local_cluster_processes(const struct local_cluster *c);
/* Returns false when the cluster's socket is missing or no process answers on it. */
bool local_cluster_is_there(const struct local_cluster *c);
/* Prints the addresses of this user's clusters to stderr, after no process has answered
 * `command` at the usual address. `flag` is "url" or "address". Prints nothing when no cluster
 * runs, or when `tried` is another address than the usual one, because the user chose that
 * address. */
void local_cluster_hint(const char *command, const char *flag, const char *tried);
/* Returns the folder of the sockets: TMPDIR, or /tmp. */
const char *local_cluster_folder(void);
