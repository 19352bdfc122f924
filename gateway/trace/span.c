#include "gateway/trace/span.h"

#include <string.h>

#include "common/base/version.h"

static void key(struct strbuf *b, const char *name)
{
    if (b->len > 0 && b->ptr[b->len - 1] != '[')
        strbuf_append_c(b, ",");
    strbuf_printf(b, "{\"key\":\"%s\",\"value\":", name);
}

static void add_text(struct strbuf *b, const char *name, const char *value)
{
    key(b, name);
    strbuf_append_c(b, "{\"stringValue\":");
    strbuf_append_json(b, str_from(value));
    strbuf_append_c(b, "}}");
}

/* Appends an integer attribute. In protobuf's JSON, 64-bit integers are strings. */
static void add_int(struct strbuf *b, const char *name, uint64_t value)
{
    key(b, name);
    strbuf_printf(b, "{\"intValue\":\"%llu\"}}", (unsigned long long)value);
}

static void add_double(struct strbuf *b, const char *name, double value)
{
    key(b, name);
    strbuf_printf(b, "{\"doubleValue\":%.9g}}", value);
}

void trace_batch_head(struct strbuf *out, const char *service_name, const char *host)
{
    strbuf_append_c(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    add_text(out, "service.name", service_name);
    add_text(out, "service.version", COX_VERSION);
    add_text(out, "host.name", host);
    strbuf_append_c(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"cox-gateway\",\"version\":"
                         "\"" COX_VERSION "\"},\"spans\":[");
}

void trace_batch_tail(struct strbuf *out)
{
    strbuf_append_c(out, "]}]}]}");
}

static void add_ids(struct strbuf *out, const struct trace_context *t)
{
    static const uint8_t none[SPAN_ID_BYTES];
    char hex[2 * TRACE_ID_BYTES + 1];
    trace_hex(t->trace_id, TRACE_ID_BYTES, hex);
    strbuf_printf(out, "{\"traceId\":\"%s\"", hex);
    trace_hex(t->span_id, SPAN_ID_BYTES, hex);
    strbuf_printf(out, ",\"spanId\":\"%s\"", hex);
    if (memcmp(t->parent_id, none, sizeof none) != 0) {
        trace_hex(t->parent_id, SPAN_ID_BYTES, hex);
        strbuf_printf(out, ",\"parentSpanId\":\"%s\"", hex);
    }
    if (t->state[0]) {
        strbuf_append_c(out, ",\"traceState\":");
        strbuf_append_json(out, str_from(t->state));
    }
}

static void add_attributes(struct strbuf *out, const struct access_record *n)
{
    add_text(out, "gen_ai.response.model", n->model);
    add_text(out, "gen_ai.request.id", n->id);
    add_double(out, "gen_ai.request.temperature", n->temperature);
    add_double(out, "gen_ai.request.top_p", n->top_p);
    add_int(out, "gen_ai.request.max_tokens", n->max_tokens);
    add_int(out, "gen_ai.request.n", n->n);
    add_int(out, "gen_ai.usage.num_sequences", n->n_choices);
    add_int(out, "gen_ai.usage.prompt_tokens", n->prompt_tokens);
    add_int(out, "gen_ai.usage.completion_tokens", n->completion_tokens);
    add_double(out, "gen_ai.latency.e2e", n->phases.e2e);
    add_double(out, "gen_ai.latency.time_in_queue", n->phases.queue);
    if (!n->has_first_token)
        return;
    add_double(out, "gen_ai.latency.time_to_first_token", n->ttft);
    add_double(out, "gen_ai.latency.time_in_model_prefill", n->phases.prefill);
    add_double(out, "gen_ai.latency.time_in_model_decode", n->phases.decode);
    add_double(out, "gen_ai.latency.time_in_model_inference", n->phases.inference);
}

void trace_span(struct strbuf *out, const struct access_record *n, int http_status, bool aborted,
                uint64_t duration_ns)
{
    const char *outcome = access_record_outcome(n, http_status, aborted);
    const unsigned long long begin = n->begun_wall_ns, end = begin + duration_ns;
    add_ids(out, &n->trace);
    strbuf_printf(out,
                  ",\"name\":\"llm_request\",\"kind\":2,\"startTimeUnixNano\":\"%llu\","
                  "\"endTimeUnixNano\":\"%llu\",\"attributes\":[",
                  begin, end);
    add_attributes(out, n);
    add_int(out, "http.response.status_code", (uint64_t)http_status);
    add_text(out, "coxswain.outcome", outcome);
    strbuf_append_c(out, "]");
    if (strcmp(outcome, "error") == 0)
        strbuf_append_c(out, ",\"status\":{\"code\":2}");
    strbuf_append_c(out, "}");
}
