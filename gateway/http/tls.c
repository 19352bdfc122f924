#include "gateway/http/tls.h"

#include "common/base/log.h"
#include "gateway/http/state.h"

enum { TICK_MS = 500 };

/* Also after each change. */
static void tell(struct gateway *g)
{
    metric_set(g->tls_expires, (double)tls_server_expires_s(g->tls));
    log_info("tls_certificate", "file=%s expires=%s", log_quote(g->config->ssl.certfile),
             log_quote(tls_server_expires(g->tls)));
}

enum status gateway_tls_init(struct gateway *g, struct error *err)
{
    const struct ssl_options *o = &g->config->ssl;
    const struct tls_options t = {.certfile = o->certfile,
                                  .keyfile = o->keyfile,
                                  .key_password = o->keyfile_password,
                                  .ca_certs = o->ca_certs,
                                  .ciphers = o->ciphers,
                                  .client_certs = (enum tls_client_certs)o->cert_reqs};
    if (!o->certfile && (o->keyfile || o->ca_certs || o->cert_reqs > 0))
        return error_set(err, STATUS_INVALID,
                         "--ssl-keyfile, --ssl-ca-certs and --ssl-cert-reqs need --ssl-certfile: "
                         "without a certificate there is no TLS");
    if (!o->certfile)
        return STATUS_OK;
    TRY(tls_server_new(&t, &g->tls, err));
    g->tls_expires =
        metrics_gauge(g->metrics, "coxswain_gateway_tls_certificate_expires_timestamp_seconds", "",
                      "When the certificate in force ends, in seconds since 1970.");
    tell(g);
    return STATUS_OK;
}

static void on_tick(void *ctx)
{
    struct gateway *g = ctx;
    struct error err = {0};
    bool changed;
    if (tls_server_look(g->tls, &changed, &err) != STATUS_OK)
        log_error("tls_certificate_not_read", "kept_until=%s why=%s",
                  log_quote(tls_server_expires(g->tls)), log_quote(err.text));
    else if (changed)
        tell(g);
}

void gateway_tls_watch(struct gateway *g)
{
    if (g->tls && g->config->ssl.refresh)
        g->tls_timer = loop_timer_start(g->loop, TICK_MS, TICK_MS, on_tick, g);
}
