#pragma once
/* Reads W3C Trace Context (www.w3.org/TR/trace-context): a request's headers traceparent and
 * tracestate name the trace that it belongs to. The input is hostile: a header that does not
 * match the standard exactly is ignored. The functions are pure. */
#include "common/base/str.h"

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACE_STATE_MAX = 512 };

struct trace_context {
    uint8_t trace_id[TRACE_ID_BYTES]; /* id of the trace; all 0 = no trace */
    uint8_t span_id[SPAN_ID_BYTES];   /* id of this gateway's span */
    uint8_t parent_id[SPAN_ID_BYTES]; /* id of the caller's span; all 0 = the trace began here */
    bool sampled;                     /* true when the span will be exported */
    char state[TRACE_STATE_MAX + 1];  /* tracestate of the caller, or "" */
};

/* Reads traceparent and tracestate. Returns false when there is no valid traceparent. `out` has
 * no trace then. The caller sets `span_id`. */
bool trace_context_read(struct trace_context *out, struct str traceparent, struct str tracestate);
/* Begins a trace. `random` has the bytes of the id. `ratio`, 0 to 1, is the share of sampled
 * traces. The decision depends only on the trace's id, so it is the same in every process. */
void trace_context_begin(struct trace_context *out, const uint8_t random[TRACE_ID_BYTES],
                         double ratio);
bool trace_context_is_set(const struct trace_context *c);
/* Writes n bytes as lower-case hex, and a NUL byte. */
void trace_hex(const uint8_t *bytes, size_t n, char *out);
