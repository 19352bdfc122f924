#include "gateway/servers.h"

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/host/loopback.h"
#include "common/http/server/request.h"
#include "gateway/models/peek.h"
#include "gateway/routes/dispatch.h"
#include "gateway/routes/routes.h"
#include "gateway/trace/access_record.h"

enum { ADMIN_CONNECTIONS = 64 };

static void on_answered(void *ctx, const struct http_request *r, const struct http_answered *how)
{
    struct api_server *a = ctx;
    const struct http_route *row = NULL;
    size_t n;
    char allow[64];
    (void)routes_find(http_method(r), http_path(r), &row, allow);
    http_metrics_answered(&a->http_metrics, row ? row->path : NULL,
                          row ? (size_t)(row - routes_all(&n)) : 0, r, how);
    struct access_record *record = front_record(r);
    const struct api_request *llm = http_get_user(r);
    if (record && llm) /* the request ended in this turn, so it still exists */
        access_record_take(record, llm);
    front_answered(&a->front, r, how);
}

static void on_request(void *ctx, struct http_request *r)
{
    routes_dispatch(ctx, r, false);
}

static void on_admin_request(void *ctx, struct http_request *r)
{
    routes_dispatch(ctx, r, true);
}

static bool unpacks(void *ctx, const struct http_request *r)
{
    return routes_reads_body(ctx, r, false);
}

static uint64_t body_max(void *ctx, struct http_request *r)
{
    return routes_body_max(ctx, r, false);
}

static uint64_t body_max_for_admin(void *ctx, struct http_request *r)
{
    return routes_body_max(ctx, r, true);
}

static bool unpacks_for_admin(void *ctx, const struct http_request *r)
{
    return routes_reads_body(ctx, r, true);
}

static void on_drain(void *ctx, struct http_request *r)
{
    struct api_server *a = ctx;
    struct api_request *llm = http_get_user(r);
    if (llm)
        serving_on_drain(llm->s, llm);
    else
        state_calls_on_drain(a->state, r);
}

static void on_abort(void *ctx, struct http_request *r)
{
    struct api_server *a = ctx;
    struct api_request *llm = http_get_user(r);
    if (llm)
        serving_on_abort(llm->s, llm);
    else if (!state_calls_on_abort(a->state, r))
        model_set_on_abort(&a->models, r);
}

/* Warns about an address that is open to every client. The function does not refuse the address,
 * because it can be intended, behind a proxy that authenticates. */
static void warn_if_open(const struct gateway_config *c)
{
    bool has_keys = c->api_keys.n_items > 0 || c->api_key_file || c->ssl.cert_reqs == 2;
    if (!c->uds && !has_keys && !host_is_loopback(str_from(c->host)))
        log_warn(
            "open_to_everybody", "host=%s text=%s", log_quote(c->host),
            log_quote("all clients that can reach this address can use the model: set "
                      "--api-key-file FILE, or put a proxy that authenticates clients in front"));
}

struct http_limits servers_limits(const struct gateway_config *c)
{
    const struct bounds_options *b = &c->bounds;
    const uint64_t body = (uint64_t)c->max_body_bytes, bodies = (uint64_t)b->max_body_bytes_total;
    const uint32_t wait_ms = (uint32_t)(b->transfer_timeout_s * 1000);
    return (struct http_limits){.max_connections = (uint32_t)c->max_connections,
                                .max_body_bytes = body,
                                /* one request can use at most half of this memory */
                                .max_body_bytes_total = bodies > 2 * body ? bodies : 2 * body,
                                .max_answer_bytes_total = (uint64_t)b->max_answer_bytes_total,
                                .body_timeout_ms = wait_ms,
                                .write_stall_ms = wait_ms,
                                .rate_window_ms = wait_ms,
                                .min_bytes_per_s = (uint32_t)b->min_transfer_rate};
}

static void set_host_rules(struct api_server *a)
{
    const struct gateway_config *c = a->config;
    const bool has_keys = a->auth.n_entries > 0;
    const struct host_rule lists = {.hosts = &c->bounds.allowed_hosts,
                                    .origins = &c->front.allowed_origins};
    a->hosts = a->admin_hosts = lists;
    a->hosts.on = host_rule_applies(c->host, c->uds, has_keys);
    a->admin_hosts.on = host_rule_applies(c->admin_host, NULL, has_keys || a->admin_keys.n > 0);
}

static enum status start_server(struct api_server *a, struct error *err)
{
    const struct gateway_config *c = a->config;
    struct http_options o = {.host = c->host,
                             .port = (uint16_t)c->port,
                             .uds = c->uds,
                             .tls = a->tls.server,
                             .limits = servers_limits(c),
                             .server_name = "coxswain/" COX_VERSION,
                             .root_path = c->front.root_path};
    struct http_handlers h = {.ctx = a,
                              .on_request = on_request,
                              .on_drain = on_drain,
                              .on_abort = on_abort,
                              .on_answered = on_answered,
                              .unpacks = unpacks,
                              .look = c->models ? model_peek_find : NULL,
                              .body_max = body_max};
    TRY(http_server_start(a->loop, &o, &h, &a->server, err));
    warn_if_open(c);
    const struct served_model *m = model_set_only(&a->models);
    log_info("gateway_listening", "%s=%s port=%u tls=%s model=%s head=%s encrypted=%s models=%u",
             c->uds ? "uds" : "host", c->uds ? log_quote(c->uds) : c->host,
             http_server_port(a->server), a->tls.server ? "true" : "false",
             log_quote(m ? m->name : c->models), m ? c->head : "-", c->insecure ? "false" : "true",
             a->models.n_listed);
    return STATUS_OK;
}

/* Starts the server for operators, probes and Prometheus. Load balancers see only the public
 * address. */
static enum status start_admin_server(struct api_server *a, struct error *err)
{
    const struct gateway_config *c = a->config;
    struct http_options o = {.host = c->admin_host,
                             .port = (uint16_t)(c->admin_port < 0 ? 0 : c->admin_port),
                             .tls = a->tls.server,
                             .limits = {.max_connections = ADMIN_CONNECTIONS},
                             .server_name = "coxswain/" COX_VERSION,
                             .root_path = c->front.root_path};
    struct http_handlers h = {.ctx = a,
                              .on_request = on_admin_request,
                              .on_drain = on_drain,
                              .on_abort = on_abort,
                              .on_answered = on_answered,
                              .unpacks = unpacks_for_admin,
                              .body_max = body_max_for_admin};
    if (c->admin_port < 0)
        return STATUS_OK;
    TRY(http_server_start(a->loop, &o, &h, &a->admin_server, err));
    log_info("gateway_admin_listening", "host=%s port=%u tls=%s", c->admin_host,
             http_server_port(a->admin_server), a->tls.server ? "true" : "false");
    return STATUS_OK;
}

enum status servers_start(struct api_server *a, struct error *err)
{
    set_host_rules(a);
    TRY(start_server(a, err));
    return start_admin_server(a, err);
}
