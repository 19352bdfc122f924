#pragma once
/* The socket by which `cox ps`, `cox stop`, `cox logs` and `cox scale` ask a running `cox up`:
 * "control", in its throw-away folder, which nobody else may enter. It keeps the last lines of the
 * log. The sockets of a user are the list of this machine's clusters; there is no other. Loop
 * thread only.
 *
 * GET /            {"name", "model", "state", "url", "admin": HOST:PORT, "pid", "uptime_s",
 *                   "workers", "group", "max_groups", "processes": [NAME], "log": FILE or null}
 * POST /stop       {"pid"}, and the cluster ends as after SIGTERM
 * GET /logs?since=N   "NEXT\n", then lines "NAME\tTEXT\n" from N on
 * POST /scale {"workers": N}   {"was", "workers", "group"}, or 400 and {"error"} */
#include "common/loop/loop.h"

struct up_control;
struct up_control_options {
    struct loop *loop;
    const char *folder; /* of the socket */
    const char *admin;  /* HOST:PORT of the head's admin API, by which people know the cluster */
    const char *admin_key_file; /* of that API, with which the head is told; NULL: none */
    const char *name, *model, *url, *log_file; /* log_file NULL: in the foreground */
    uint32_t replica_ranks, max_replicas; /* workers of a whole replica; max_replicas 0: no bound */
    uint32_t (*n_workers)(void *ctx);
    const char *(*state)(void *ctx);               /* "starting", "serving", "stopping" */
    const char *(*process)(void *ctx, uint32_t i); /* a name; NULL: there are no more */
    void (*stop)(void *ctx);
    enum status (*scale)(void *ctx, uint32_t n_workers, struct error *err);
    void *ctx;
};

MUST_USE enum status up_control_start(const struct up_control_options *o, struct up_control **out,
                                      struct error *err);
void up_control_add_line(struct up_control *c, const char *name, const char *line, size_t n);
void up_control_free(struct up_control *c); /* NULL is fine */
