#pragma once
/* Writes the framing of server-sent events as OpenAI's clients read them.
 * request/answer_writer.c decides when to write (only while http_stream_room allows it). */
#include "common/base/str.h"

#define SSE_CONTENT_TYPE "text/event-stream; charset=utf-8"
#define SSE_KEEP_ALIVE   ": keep-alive\n\n"
#define SSE_DONE         "data: [DONE]\n\n"

/* `sse_begin` and `sse_end` begin and end an event. Between them the caller appends the event's
 * JSON, one line, to `out`. */
void sse_begin(struct strbuf *out);
void sse_end(struct strbuf *out);
