#pragma once
/* Makes many HTTP calls at once on the calling thread, with libcurl's multi interface, for the
 * load generator of `cox bench`. Connections stay open and are reused. http_streams_turn makes
 * all callbacks; a callback may begin further calls. */
#include "common/http/client/call.h"

struct http_streams;
/* Type of the last callback of a stream. With STATUS_OK the answer is complete and `code` is its
 * HTTP status. Otherwise `s` and `err` say why the answer is not complete. */
typedef void http_streams_end_fn(void *ctx, enum status s, int code, const struct error *err);

MUST_USE enum status http_streams_new(struct http_streams **out, struct error *err);
/* Begins a call. `c` is copied; the data that it points to must stay until on_end. c->on_data
 * and c->ctx are required; on_data also gets the body of an HTTP error. When this function
 * returns an error, on_end is not called. */
MUST_USE enum status http_streams_begin(struct http_streams *s, const struct http_call *c,
                                        http_streams_end_fn *on_end, struct error *err);
/* Handles all events that are ready, and waits at most timeout_ms for an event. */
void http_streams_turn(struct http_streams *s, uint32_t timeout_ms);
/* Ends all open streams. on_end gets STATUS_CLOSED. */
void http_streams_abort(struct http_streams *s);
/* Calls http_streams_abort, then frees the streams. s may be NULL. */
void http_streams_free(struct http_streams *s);
