#pragma once
/* The gateway's TLS certificate: read from its options, and again when the files change. Loop
 * thread only. */
#include "common/base/metrics.h"
#include "common/loop/loop.h"
#include "common/options/ssl.h"
#include "common/tls/server.h"

struct gateway_tls {
    const struct ssl_options *o; /* borrowed; TLS options */
    struct tls_server *server;   /* certificate and key in use; NULL = plain HTTP */
    struct metric *expires;
    struct loop_timer *timer;
};

/* Without --ssl-certfile there is no TLS, and any other TLS option is STATUS_INVALID. */
MUST_USE enum status gateway_tls_init(struct gateway_tls *t, const struct ssl_options *o,
                                      struct metrics *registry, struct error *err);
void gateway_tls_watch(struct gateway_tls *t, struct loop *l); /* call it when the loop runs */
void gateway_tls_stop(struct gateway_tls *t); /* call it before the loop is freed */
void gateway_tls_fini(struct gateway_tls *t);
