#pragma once
/* Answers on the control socket of a running `cox up`, for `cox ps`, `cox stop`, `cox logs`,
 * `cox scale` and `cox models`. The socket is called "control" and lies in the cluster's throw-away
 * folder, which no other user may enter. The struct keeps the last lines of the log. There is no
 * list of clusters: commands find a user's clusters by these sockets. Only the loop thread calls
 * these functions.
 *
 *   GET /            {"name", "model", "state", "url", "admin": HOST:PORT, "pid", "uptime_s",
 *                     "workers", "group", "max_groups", "processes": [NAME], "log": FILE or null}
 *   POST /stop       {"pid"}, and the cluster ends as after SIGTERM
 *   GET /logs?since=N   "NEXT\n", then lines "NAME\tTEXT\n" from N on
 *   GET /models?change=N   the models of a cluster of several, and how change N has ended
 *   POST /models {"do": …}      {"change": N}, or {"error"} with 400, 404 or 409
 *   POST /scale {"workers": N}   {"was", "workers", "group"}, or 400 and {"error"} */
#include <jansson.h>
#include <stdint.h>

#include "common/loop/loop.h"

struct up_control;
struct up_control_options {
    struct loop *loop;
    const char *folder;         /* folder of the socket */
    const char *admin;          /* HOST:PORT of the head's admin API; identifies the cluster */
    const char *admin_key_file; /* key file of the admin API, to report a scaling; NULL = none */
    const char *name, *model, *url, *log_file; /* log_file NULL = `cox up` runs in the foreground */
    /* replica_ranks: workers of one replica; max_replicas 0 = no limit */
    uint32_t replica_ranks, max_replicas;
    uint32_t (*n_workers)(void *ctx);
    const char *(*state)(void *ctx); /* state of the cluster: "starting", "serving", "stopping" */
    /* name of process i; NULL = there is no process i */
    const char *(*process)(void *ctx, uint32_t i);
    void (*stop)(void *ctx);
    enum status (*scale)(void *ctx, uint32_t n_workers, struct error *err);
    /* the models of a cluster of several, and an edit of them; NULL = the cluster has one model.
     * `edit` checks the order, which is of an unknown client. */
    json_t *(*models)(void *ctx, uint64_t change);
    enum status (*edit)(void *ctx, const json_t *order, uint64_t *change, struct error *err);
    void *ctx;
};

MUST_USE enum status up_control_start(const struct up_control_options *o, struct up_control **out,
                                      struct error *err);
void up_control_add_line(struct up_control *c, const char *name, const char *line, size_t n);
void up_control_free(struct up_control *c); /* Frees the control socket; accepts NULL. */
