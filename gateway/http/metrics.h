#pragma once
/* Counts HTTP requests by route, method and kind of status, under the names of vLLM's server
 * (http_requests_total, http_request_duration_seconds, ...). A series is created at the first
 * request of its kind. The number of series is bounded by paths in the table of routes × methods
 * × kinds, for any requests. The handler of an unknown path is "none", and the method of an
 * unusual request is "other". Probes and scrapes are not counted, as in vLLM. Only the loop
 * thread calls these functions. */
#include "common/base/metrics.h"
#include "common/http/server/server.h"

enum {
    HTTP_METRICS_PATHS = 64,
    HTTP_METRICS_METHODS = 8,
    HTTP_METRICS_KINDS = 6,
    HTTP_METRICS_WAYS = 2
};

struct http_metrics {
    struct metrics *registry; /* owner of the metrics; borrowed */
    struct metric *requests[HTTP_METRICS_PATHS][HTTP_METRICS_METHODS][HTTP_METRICS_KINDS];
    struct metric *duration[HTTP_METRICS_PATHS][HTTP_METRICS_METHODS];
    struct metric *request_bytes[HTTP_METRICS_PATHS], *response_bytes[HTTP_METRICS_PATHS];
    struct metric *duration_all;
    struct metric *held[HTTP_METRICS_WAYS]; /* memory that the server holds: bodies, answers */
    /* connections that the server dropped or refused, indexed like `held` */
    struct metric *slow[HTTP_METRICS_WAYS], *refused[HTTP_METRICS_WAYS];
    struct metric *failed_accepts;
    struct http_counts told;
};

void http_metrics_init(struct http_metrics *m, struct metrics *registry);
/* Sets the metrics about memory that the server holds now, and about connections that it dropped
 * or refused. */
void http_metrics_load(struct http_metrics *m, const struct http_load *l);
/* Counts an answered request. `path` is the route's pattern, or NULL when there is none.
 * `i_path` is the pattern's position in the table of routes. */
void http_metrics_answered(struct http_metrics *m, const char *path, size_t i_path,
                           const struct http_request *r, const struct http_answered *a);
