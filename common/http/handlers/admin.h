#pragma once
/* Answers the three requests that every process answers: /livez (the loop runs), /readyz,
 * /metrics. A process with routes of its own calls admin_handle first. Only the loop thread
 * calls these functions. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"

struct admin_options {
    struct loop *loop;
    struct metrics *metrics;
    bool (*ready)(void *ctx);
    /* returns the reason as one word; NULL = the answer says "not ready" */
    const char *(*why_not_ready)(void *ctx);
    /* sets the gauges that are read rather than counted; or NULL */
    void (*before_metrics)(void *ctx);
    void *ctx;
    /* Keys, one of which /metrics requires, borrowed; NULL = no key is needed. */
    const struct admin_keys *metrics_keys;
    /* True = host_rule.h applies: a request must name this machine, and a web page must not have
     * sent it. */
    bool names_itself;
};

/* Returns true when the request was answered. The request's pointer is then invalid. */
bool admin_handle(const struct admin_options *o, struct http_request *r);
