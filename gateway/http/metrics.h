#pragma once
/* HTTP requests by route, method and kind of status, under the names that vLLM's server gives them
 * (http_requests_total, http_request_duration_seconds, ...). Series are made when the first request
 * of their kind was answered; there are at most as many as the table of routes has paths, times
 * methods, times kinds, whatever clients send: what is in no table is handler "none", an unusual
 * method "other". Probes and scrapes are left out, as in vLLM. Loop thread only. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"

enum {
    HTTP_METRICS_PATHS = 64,
    HTTP_METRICS_METHODS = 8,
    HTTP_METRICS_KINDS = 6,
    HTTP_METRICS_WAYS = 2
};

struct http_metrics {
    struct metrics *registry; /* borrowed */
    struct metric *requests[HTTP_METRICS_PATHS][HTTP_METRICS_METHODS][HTTP_METRICS_KINDS];
    struct metric *duration[HTTP_METRICS_PATHS][HTTP_METRICS_METHODS];
    struct metric *request_bytes[HTTP_METRICS_PATHS], *response_bytes[HTTP_METRICS_PATHS];
    struct metric *duration_all;
    struct metric *held[HTTP_METRICS_WAYS];                              /* bodies, answers */
    struct metric *slow[HTTP_METRICS_WAYS], *refused[HTTP_METRICS_WAYS]; /* the same */
    struct metric *failed_accepts;
    struct http_counts told;
};

void http_metrics_init(struct http_metrics *m, struct metrics *registry);
/* The gauges and counters say what the server holds now, and what it has given up or refused. */
void http_metrics_load(struct http_metrics *m, const struct http_load *l);
/* path: the route's pattern, NULL where none was found; i_path: its place among the routes. */
void http_metrics_answered(struct http_metrics *m, const char *path, size_t i_path,
                           const struct http_request *r, const struct http_answered *a);
