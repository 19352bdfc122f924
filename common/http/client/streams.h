#pragma once
/* Many HTTP calls at once on the calling thread, by libcurl's multi interface: the load of `cox
 * bench`. Connections are kept open and used again. Everything is called back from
 * http_streams_turn; a callback may begin further calls. */
#include "common/http/client/call.h"

struct http_streams;
/* An answer came to its end (code is its HTTP status), or none did: s and err say why. The last
 * call back of a stream. */
typedef void http_streams_end_fn(void *ctx, enum status s, int code, const struct error *err);

MUST_USE enum status http_streams_new(struct http_streams **out, struct error *err);
/* c is copied, what it points at has to stay until on_end; c->on_data and c->ctx are needed, and
 * on_data gets an error's body too. STATUS_INVALID: on_end will not be called. */
MUST_USE enum status http_streams_begin(struct http_streams *s, const struct http_call *c,
                                        http_streams_end_fn *on_end, struct error *err);
/* Handles what has come, and waits at most timeout_ms until something does. */
void http_streams_turn(struct http_streams *s, uint32_t timeout_ms);
/* Ends all that is open: on_end with STATUS_CLOSED. */
void http_streams_abort(struct http_streams *s);
void http_streams_free(struct http_streams *s); /* aborts first; NULL is fine */
