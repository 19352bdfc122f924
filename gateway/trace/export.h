#pragma once
/* Spans on their way to a collector: the loop adds, a thread of its own posts batches (OTLP/HTTP,
 * JSON) every second, or sooner when many wait. Serving never waits for it: what does not fit while
 * the collector is slow or away is dropped and counted. A batch that could not be delivered is
 * tried again a few times, as the specification wants it. */
#include "common/base/metrics.h"
#include "gateway/trace/access_record.h"

struct trace_export;

struct trace_export_options { /* borrowed for its life */
    const char *endpoint;     /* http://HOST:PORT[/PATH], default path /v1/traces */
    const char *service_name, *host;
};

/* The thread is running afterwards. STATUS_INVALID: the endpoint, with what is wrong with it. */
MUST_USE enum status trace_export_new(const struct trace_export_options *o,
                                      struct metrics *registry, struct trace_export **out,
                                      struct error *err);
void trace_export_add(struct trace_export *t, const struct access_record *n, int http_status,
                      bool aborted, uint64_t duration_ns);
/* Posts what is left, for at most two seconds. NULL is fine. */
void trace_export_free(struct trace_export *t);
