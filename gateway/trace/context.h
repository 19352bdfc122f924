#pragma once
/* W3C Trace Context (www.w3.org/TR/trace-context): which trace a request belongs to, as its headers
 * traceparent and tracestate say. Hostile input: whatever is not exactly as the standard has it
 * counts as not sent. Pure. */
#include "common/base/str.h"

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACE_STATE_MAX = 512 };

struct trace_context {
    uint8_t trace_id[TRACE_ID_BYTES]; /* all 0: in no trace */
    uint8_t span_id[SPAN_ID_BYTES];   /* ours */
    uint8_t parent_id[SPAN_ID_BYTES]; /* the caller's; all 0: it began here */
    bool sampled;                     /* its span is to be exported */
    char state[TRACE_STATE_MAX + 1];  /* the caller's tracestate, or "" */
};

/* False: there was no traceparent, or none that counts; out has no trace then. The span's id is the
 * caller's to draw. */
bool trace_context_read(struct trace_context *out, struct str traceparent, struct str tracestate);
/* A trace that begins here. random: as many bytes as the ids have; ratio of them, 0 to 1, are
 * sampled, the same ones wherever the trace's id is looked at. */
void trace_context_begin(struct trace_context *out, const uint8_t random[TRACE_ID_BYTES],
                         double ratio);
bool trace_context_is_set(const struct trace_context *c);
/* Lower-case hex with its NUL. */
void trace_hex(const uint8_t *bytes, size_t n, char *out);
