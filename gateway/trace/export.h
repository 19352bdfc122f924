#pragma once
/* Exports spans to a collector. The loop adds spans. A thread posts them in batches (OTLP/HTTP,
 * JSON) every second, or sooner when many spans wait. Serving never waits for the export. Spans
 * that do not fit in the queue while the collector is slow or unreachable are dropped and
 * counted. A failed batch is retried a few times, as the specification requires. */
#include "common/base/metrics.h"
#include "gateway/trace/access_record.h"

struct trace_export;

struct trace_export_options { /* options of an export, borrowed until `trace_export_free` */
    /* address of the collector: http://HOST:PORT[/PATH]; default path /v1/traces */
    const char *endpoint;
    const char *service_name, *host;
};

/* Starts the thread. Returns STATUS_INVALID with the reason when the endpoint is invalid. */
MUST_USE enum status trace_export_new(const struct trace_export_options *o,
                                      struct metrics *registry, struct trace_export **out,
                                      struct error *err);
void trace_export_add(struct trace_export *t, const struct access_record *n, int http_status,
                      bool aborted, uint64_t duration_ns);
/* Posts the remaining spans for at most two seconds, and frees the export. `t` may be NULL. */
void trace_export_free(struct trace_export *t);
