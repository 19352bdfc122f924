#pragma once
/* What `cox logs` and `cox scale` ask a running `cox up`: a Unix socket, "control", in its
 * throw-away folder, which nobody else may enter. It keeps the last lines of the log. Loop thread
 * only.
 *
 * GET /            {"admin": HOST:PORT, "pid", "workers", "group"}
 * GET /logs?since=N   "NEXT\n", then lines "NAME\tTEXT\n" from N on
 * POST /scale {"workers": N}   {"was", "workers", "group"}, or 400 and {"error"} */
#include "common/net/loop.h"

struct up_control;
struct up_control_options {
    struct loop *loop;
    const char *folder; /* of the socket */
    const char *admin;  /* HOST:PORT of the head's admin API, by which people know the cluster */
    const char *admin_key_file; /* of that API, with which the head is told; NULL: none */
    uint32_t group;             /* workers of a whole group */
    uint32_t (*n_workers)(void *ctx);
    enum status (*scale)(void *ctx, uint32_t n_workers, struct error *err);
    void *ctx;
};

MUST_USE enum status up_control_start(const struct up_control_options *o, struct up_control **out,
                                      struct error *err);
void up_control_add_line(struct up_control *c, const char *name, const char *line, size_t n);
void up_control_free(struct up_control *c); /* NULL is fine */
