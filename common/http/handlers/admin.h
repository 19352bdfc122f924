#pragma once
/* The three answers every process gives: /livez (the loop ticks), /readyz, /metrics. A process with
 * routes of its own asks admin_handle first. Loop thread only. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"

struct admin_options {
    struct loop *loop;
    struct metrics *metrics;
    bool (*ready)(void *ctx);
    const char *(*why_not_ready)(void *ctx); /* a word; NULL: "not ready" */
    void (*before_metrics)(void *ctx);       /* sets gauges that are read, not counted; or NULL */
    void *ctx;
    const struct admin_keys *metrics_keys; /* borrowed: /metrics wants one; NULL: it is open */
    bool names_itself; /* by host_rule.h: requests name this machine, and no page sends them */
};

/* True when it answered: the request's pointer is dead then. */
bool admin_handle(const struct admin_options *o, struct http_request *r);
