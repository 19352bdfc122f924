#pragma once
/* The three answers of every process: /livez (the loop runs), /readyz, /metrics. A process with
 * routes of its own calls admin_handle first. Loop thread only. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"

struct admin_options {
    struct loop *loop;
    struct metrics *metrics;
    bool (*ready)(void *ctx);
    const char *(*why_not_ready)(void *ctx); /* one word; NULL = "not ready" */
    void (*before_metrics)(void *ctx); /* sets gauges that are read and not counted; or NULL */
    void *ctx;
    /* borrowed: /metrics requires one of them; NULL = open */
    const struct admin_keys *metrics_keys;
    /* host_rule.h applies: a request must name this machine and not come from a web page */
    bool names_itself;
};

/* Returns true when it answered; the request's pointer is then invalid. */
bool admin_handle(const struct admin_options *o, struct http_request *r);
