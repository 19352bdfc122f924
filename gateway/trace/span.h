#pragma once
/* A request as a span of OpenTelemetry's, in the JSON that OTLP/HTTP has for it
 * (opentelemetry.io/docs/specs/otlp): "llm_request" with vLLM's attributes, gen_ai.*. Pure. */
#include "gateway/trace/access_record.h"

/* Everything but the spans, which go between head and tail, joined by commas. */
void trace_batch_head(struct strbuf *out, const char *service_name, const char *host);
void trace_batch_tail(struct strbuf *out);
/* status and aborted as access_record_outcome has them. */
void trace_span(struct strbuf *out, const struct access_record *n, int http_status, bool aborted,
                uint64_t duration_ns);
