#pragma once
/* Forwards a request of our HTTP server to another server on this machine, and relays the answer
 * as it arrives. While the client does not read, the relay stops reading from the other server.
 * The request owns the relay: http_get_user returns it. Only the loop thread calls these
 * functions. */
#include "common/http/server/server.h"

struct http_relay;

struct http_relay_options {
    struct loop *loop;
    /* request that the relay always answers, unless on_abort was called first */
    struct http_request *request;
    const char *method, *path; /* method and path of the forwarded request; copied */
    uint16_t port;             /* port on 127.0.0.1 */
};

/* Starts a relay. The relay answers 503 when the other server does not listen, and 502 when the
 * other server's answer is cut off or malformed. If the stream has begun, the client's
 * connection is closed instead. */
void http_relay_start(const struct http_relay_options *o);
/* Call these from the server's on_drain and on_abort, for a request that has a relay. */
void http_relay_on_drain(struct http_relay *r);
void http_relay_on_abort(struct http_relay *r);
