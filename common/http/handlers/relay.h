#pragma once
/* A request of our HTTP server, handed on to another one on this machine, and its answer back as it
 * comes. What the client does not read is not read from the other side either. Between two ends a
 * relay belongs to the request: http_get_user gives it back. Loop thread only. */
#include "common/http/server/server.h"

struct http_relay;

struct http_relay_options {
    struct loop *loop;
    struct http_request *request; /* answered by the relay in every case, until on_abort */
    const char *method, *path;    /* of the request to come; copied */
    uint16_t port;                /* on 127.0.0.1 */
};

/* An answer that breaks off, or is none, becomes 502, one that cannot be asked for 503; in a stream
 * the connection is closed. */
void http_relay_start(const struct http_relay_options *o);
/* The server's on_drain and on_abort, for a request that has a relay. */
void http_relay_on_drain(struct http_relay *r);
void http_relay_on_abort(struct http_relay *r);
