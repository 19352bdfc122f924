#pragma once
/* Runs an HTTP/1.1 server, with llhttp on the loop. The gateway uses it for the OpenAI API and
 * SSE, and the head for its admin API. Every process uses it for /livez, /readyz and /metrics.
 * The server knows nothing of routes or JSON.
 *
 * A handler gets a request whole (headers and body, both bounded). The handler keeps the pointer
 * until it has answered or on_abort reports that the client disconnected. Then the pointer is
 * invalid. Bodies and answers may take any time while they move. Every other wait has a
 * deadline. Memory held for clients is bounded in total and by tenant
 * (common/collections/room.h). Only the loop thread calls these functions. */
#include "common/base/status.h"
#include "common/http/message/service.h"
#include "common/loop/loop.h"

struct http_server;
struct tls_server; /* common/tls/server.h declares this struct */

struct http_options {
    const char *host;
    uint16_t port;          /* port to listen on; 0 = any free port */
    const char *uds;        /* path of a Unix socket, used instead of host and port; NULL = none */
    struct tls_server *tls; /* TLS settings, borrowed; NULL = no TLS */
    struct http_limits limits; /* limits of the server; a field that is 0 takes its default */
    const char *server_name;   /* value of the "Server:" header */
    const char *root_path;     /* prefix that is removed from paths, borrowed; NULL = none */
};

/* Starts a server. Returns STATUS_EXISTS, with the port in the text, when the port is in use. */
MUST_USE enum status http_server_start(struct loop *l, const struct http_options *o,
                                       const struct http_handlers *h, struct http_server **out,
                                       struct error *err);
uint16_t http_server_port(const struct http_server *s);
/* Drains the server: closes idle connections, gives new ones a second to begin a request, and
 * closes each connection after its answer. */
void http_server_stop_accepting(struct http_server *s);
void http_server_load(const struct http_server *s, struct http_load *out);
/* Returns true when a request is open or may still arrive. */
bool http_server_has_work(const struct http_server *s);
void http_server_close(struct http_server *s);
