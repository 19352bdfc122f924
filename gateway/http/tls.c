#include "gateway/http/tls.h"

#include "common/base/log.h"
#include "common/tls/server.h"

enum { TICK_MS = 500 };

/* Reports the certificate at the start and after each change. */
static void tell(const struct gateway_tls *t)
{
    metric_set(t->expires, (double)tls_server_expires_s(t->server));
    log_info("tls_certificate", "file=%s expires=%s", log_quote(t->o->certfile),
             log_quote(tls_server_expires(t->server)));
}

enum status gateway_tls_init(struct gateway_tls *t, const struct ssl_options *o,
                             struct metrics *registry, struct error *err)
{
    const struct tls_options files = {.certfile = o->certfile,
                                      .keyfile = o->keyfile,
                                      .key_password = o->keyfile_password,
                                      .ca_certs = o->ca_certs,
                                      .ciphers = o->ciphers,
                                      .client_certs = (enum tls_client_certs)o->cert_reqs};
    t->o = o;
    if (!o->certfile && (o->keyfile || o->ca_certs || o->cert_reqs > 0))
        return error_set(err, STATUS_INVALID,
                         "--ssl-keyfile, --ssl-ca-certs and --ssl-cert-reqs need --ssl-certfile: "
                         "without a certificate there is no TLS");
    if (!o->certfile)
        return STATUS_OK;
    TRY(tls_server_new(&files, &t->server, err));
    t->expires =
        metrics_gauge(registry, "coxswain_gateway_tls_certificate_expires_timestamp_seconds", "",
                      "When the certificate in force ends, in seconds since 1970.");
    tell(t);
    return STATUS_OK;
}

static void on_tick(void *ctx)
{
    struct gateway_tls *t = ctx;
    struct error err = {0};
    bool changed;
    if (tls_server_look(t->server, &changed, &err) != STATUS_OK)
        log_error("tls_certificate_not_read", "kept_until=%s why=%s",
                  log_quote(tls_server_expires(t->server)), log_quote(err.text));
    else if (changed)
        tell(t);
}

void gateway_tls_watch(struct gateway_tls *t, struct loop *l)
{
    if (t->server && t->o->refresh)
        t->timer = loop_timer_start(l, TICK_MS, TICK_MS, on_tick, t);
}

void gateway_tls_stop(struct gateway_tls *t)
{
    loop_timer_stop(t->timer);
    t->timer = NULL;
}

void gateway_tls_fini(struct gateway_tls *t)
{
    tls_server_free(t->server);
}
