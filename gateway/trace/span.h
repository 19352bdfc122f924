#pragma once
/* Writes a request as an OpenTelemetry span, in OTLP/HTTP's JSON
 * (opentelemetry.io/docs/specs/otlp): "llm_request" with vLLM's attributes, gen_ai.*. The
 * functions are pure. */
#include "gateway/trace/access_record.h"

/* These functions append the beginning and the end of a batch. The caller appends the spans,
 * joined by commas, between them. */
void trace_batch_head(struct strbuf *out, const char *service_name, const char *host);
void trace_batch_tail(struct strbuf *out);
/* Appends a span. `http_status` is the status of the answer. `aborted` means that the client
 * disconnected. */
void trace_span(struct strbuf *out, const struct access_record *n, int http_status, bool aborted,
                uint64_t duration_ns);
