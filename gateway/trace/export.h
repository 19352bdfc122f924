#pragma once
/* Export of spans to a collector. The loop adds spans; a thread posts them in batches
 * (OTLP/HTTP, JSON) every second, or sooner when many wait. Serving never waits for it. Spans
 * that do not fit while the collector is slow or away are dropped and counted. A failed batch is
 * retried a few times, as the specification requires. */
#include "common/base/metrics.h"
#include "gateway/trace/access_record.h"

struct trace_export;

struct trace_export_options { /* borrowed until `trace_export_free` */
    const char *endpoint;     /* http://HOST:PORT[/PATH]; default path /v1/traces */
    const char *service_name, *host;
};

/* Starts the thread. Returns STATUS_INVALID with the reason when the endpoint is invalid. */
MUST_USE enum status trace_export_new(const struct trace_export_options *o,
                                      struct metrics *registry, struct trace_export **out,
                                      struct error *err);
void trace_export_add(struct trace_export *t, const struct access_record *n, int http_status,
                      bool aborted, uint64_t duration_ns);
/* Posts the remaining spans for at most two seconds. NULL is allowed. */
void trace_export_free(struct trace_export *t);
