#pragma once
/* Keeps the gateway's TLS certificate: reads it from the files of its options, and again when
 * the files change. Only the loop thread calls these functions. */
#include "common/base/metrics.h"
#include "common/loop/loop.h"
#include "common/options/ssl.h"
#include "common/tls/server.h"

struct gateway_tls {
    const struct ssl_options *o; /* TLS options; borrowed */
    struct tls_server *server;   /* certificate and key in use; NULL = plain HTTP */
    struct metric *expires;
    struct loop_timer *timer;
};

/* Reads the certificate. Without --ssl-certfile there is no TLS, and any other TLS option gives
 * STATUS_INVALID. */
MUST_USE enum status gateway_tls_init(struct gateway_tls *t, const struct ssl_options *o,
                                      struct metrics *registry, struct error *err);
/* watches the files; call it when the loop runs */
void gateway_tls_watch(struct gateway_tls *t, struct loop *l);
/* stops the watch; call it before the loop is freed */
void gateway_tls_stop(struct gateway_tls *t);
void gateway_tls_fini(struct gateway_tls *t);
