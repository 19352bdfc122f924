#pragma once
/* Server-sent events as OpenAI's clients read them. Only the framing: who writes when is
 * request/answer_writer.c's (it writes only while http_stream_room allows). */
#include "common/base/str.h"

#define SSE_CONTENT_TYPE "text/event-stream; charset=utf-8"
#define SSE_KEEP_ALIVE   ": keep-alive\n\n"
#define SSE_DONE         "data: [DONE]\n\n"

/* An event is begun, its JSON (one line) appended to out by the caller, and ended. */
void sse_begin(struct strbuf *out);
void sse_end(struct strbuf *out);
