#pragma once
/* Sends the answer to a request, whole or as a stream. A stream is pull-based: after
 * http_stream_begin, write at most as many bytes as http_stream_room returns. When less than
 * half of the high-water mark is free, on_drain is called once half of it is free again. Only
 * the loop thread calls these functions. */
#include "common/base/str.h"
#include "common/http/message/service.h"

/* Returns false when so many bytes of the tenant's answers wait for readers that a large answer
 * would be refused. */
bool http_answer_has_room(struct http_request *r);

/* Sends the whole answer. content_type may be NULL for an empty body. A body over 64 KiB that
 * does not fit in the budget of answers is replaced by a 503. The request's pointer is invalid
 * afterwards. */
void http_respond(struct http_request *r, int status, const char *content_type, struct str body,
                  const struct http_header_kv *extra, size_t n_extra);
/* Sends the headers of a stream; chunks follow (chunked in HTTP/1.1, until the connection's end
 * in 1.0). */
void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       const struct http_header_kv *extra, size_t n_extra);
/* Begins a stream of known length. Exactly that many bytes must be written before
 * http_stream_end. The connection may be reused. */
void http_stream_begin_sized(struct http_request *r, int status, const char *content_type,
                             uint64_t length);
size_t http_stream_room(const struct http_request *r);
void http_stream_write(struct http_request *r, struct str chunk); /* copies the chunk */
/* Ends the connection without an answer, or in the middle of an answer. on_abort is not called.
 * The request's pointer is invalid afterwards. */
void http_drop(struct http_request *r);
/* Sends the last chunk of a stream. The request's pointer is invalid afterwards. */
void http_stream_end(struct http_request *r);
