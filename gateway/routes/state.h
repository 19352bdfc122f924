#pragma once
/* `api_server` is the API's state, which all handlers use. gateway.c creates it and owns the
 * objects behind its pointers. Only the loop thread uses it. */
#include "common/base/metrics.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"
#include "common/options/gateway.h"
#include "gateway/auth/auth.h"
#include "gateway/batches/calls.h"
#include "gateway/http/front.h"
#include "gateway/http/metrics.h"
#include "gateway/http/tls.h"
#include "gateway/models/set.h"
#include "gateway/routes/route.h"

struct api_server {
    const struct gateway_config *config;
    struct loop *loop;
    struct metrics *metrics;
    uint64_t started_s;
    struct model_set models;
    struct state_calls *state;
    struct encode_pool *compile_pool;
    struct metric *compiles_waiting;
    struct strbuf openapi; /* text of the document /openapi.json */
    /* the following fields hold the rules of access */
    struct auth auth;
    /* keys for calls about adapters; without any such key, no client has access */
    struct admin_keys admin_keys;
    struct host_rule hosts, admin_hosts;
    /* the following fields hold the addresses and connections */
    struct front front;
    struct http_metrics http_metrics;
    struct gateway_tls tls;
    struct http_server *server;
    /* server of the admin routes; NULL = they are at the public address */
    struct http_server *admin_server;
    /* the gateway is shutting down: probes fail, requests are accepted for --shutdown-delay */
    bool stopping;
    bool has_served; /* /ping has succeeded once; later failures are reported as failures */
};
