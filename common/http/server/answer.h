#pragma once
/* The answer to a request: whole, or a stream. Streaming is pull-based: after http_stream_begin,
 * write at most what http_stream_room allows; once it has answered less than half of the high
 * water, on_drain tells when at least half is free again. Loop thread only. */
#include "common/base/str.h"
#include "common/http/message/service.h"

/* False: so much of the tenant's answers waits for readers that a large one would be refused. */
bool http_answer_has_room(struct http_request *r);

/* The whole answer. content_type may be NULL for an empty body. A body over 64 KiB for which there
 * is no room is answered with a 503 in its place. The pointer is dead afterwards. */
void http_respond(struct http_request *r, int status, const char *content_type, struct str body,
                  const struct http_header_kv *extra, size_t n_extra);
/* Headers now, chunks later (chunked for 1.1, close-delimited for 1.0). */
void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       const struct http_header_kv *extra, size_t n_extra);
/* The same of an answer whose length is known: exactly that many bytes are written, then it is
 * ended. The connection goes on afterwards. */
void http_stream_begin_sized(struct http_request *r, int status, const char *content_type,
                             uint64_t length);
size_t http_stream_room(const struct http_request *r);
void http_stream_write(struct http_request *r, struct str chunk); /* copies */
/* Ends the connection without an answer, or in the middle of one. The pointer is dead afterwards;
 * on_abort is not called. */
void http_drop(struct http_request *r);
void http_stream_end(struct http_request *r); /* last chunk; the pointer is dead afterwards */
