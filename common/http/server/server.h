#pragma once
/* HTTP/1.1 server: llhttp on the loop. Used by the gateway (OpenAI, SSE) and by every process for
 * /livez, /readyz, /metrics and the head's admin API. Knows nothing of routes or JSON.
 *
 * A request is handed over whole (headers and body, both bounded). The handler keeps the pointer
 * until it has answered or on_abort told it that the client is gone; after either the pointer is
 * dead. Bodies and answers may take as long as they like while they move; every other wait
 * has a deadline. What is held for clients is bounded in all and by tenant
 * (common/collections/room.h). Loop thread only. */
#include "common/base/status.h"
#include "common/http/message/service.h"
#include "common/loop/loop.h"

struct http_server;
struct tls_server; /* common/tls/server.h */

struct http_options {
    const char *host;
    uint16_t port;             /* 0: any free one */
    const char *uds;           /* a Unix socket's path, in place of host and port; NULL: none */
    struct tls_server *tls;    /* borrowed: connections speak TLS with it; NULL: plain */
    struct http_limits limits; /* a 0 field takes its default */
    const char *server_name;   /* "Server:" header */
    const char *root_path;     /* borrowed: taken off the paths that begin with it; NULL: none */
};

/* STATUS_EXISTS with the port in the text when the port is in use. */
MUST_USE enum status http_server_start(struct loop *l, const struct http_options *o,
                                       const struct http_handlers *h, struct http_server **out,
                                       struct error *err);
uint16_t http_server_port(const struct http_server *s);
/* Drain: idle connections are closed, new ones have a second to bring their request, and each
 * answer is its connection's last. */
void http_server_stop_accepting(struct http_server *s);
void http_server_load(const struct http_server *s, struct http_load *out);
/* A request is open, or may still come. */
bool http_server_has_work(const struct http_server *s);
void http_server_close(struct http_server *s);
