#pragma once
/* The gateway's struct, for gateway.c and routes.c only. */
#include "common/base/metrics.h"
#include "common/bus/bus.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/server.h"
#include "common/keys/admin_keys.h"
#include "common/loop/loop.h"
#include "common/model/info/info.h"
#include "common/tls/tls.h"
#include "gateway/auth/auth.h"
#include "gateway/auth/quotas.h"
#include "gateway/batches/calls.h"
#include "gateway/gateway.h"
#include "gateway/head_link/engine_client.h"
#include "gateway/http/front.h"
#include "gateway/http/http_metrics.h"
#include "gateway/http/routes.h"
#include "gateway/prepare/outputs_config.h"
#include "gateway/prepare/pooling.h"
#include "gateway/serving/adapters.h"
#include "gateway/serving/serving.h"
#include "gateway/trace/request_note.h"

enum { MAX_MARKERS = 32 };

struct gateway {
    const struct gateway_config *config;
    struct loop *loop;
    struct metrics *metrics;
    struct model_info model;
    bool has_model;
    const char *const *served_names; /* borrowed from the config, or own_name */
    size_t n_served_names;
    const char *own_name[1];
    uint64_t started_s;
    struct text_tokenizer *tokenizer;
    struct compilers *compilers; /* NULL: --grammar-processes 0 */
    struct grammar_check *grammars;
    struct text_template *chat_template;                        /* NULL: none */
    const struct answer_parser *reasoning_parser, *tool_parser; /* NULL: none */
    uint32_t marker_ids[MAX_MARKERS], n_marker_ids;
    struct front front;
    struct http_metrics http_metrics;
    struct sampling_defaults sampling;
    struct pooler_config pooler;
    struct outputs_config outputs;
    struct auth auth;
    struct quotas *quotas; /* NULL: this gateway counts for itself */
    struct api_key *key;   /* whose request is being dispatched; NULL: nobody's */
    struct encode_pool *pool, *compile_pool;
    struct metric *compiles_waiting;
    struct gateway_adapters adapters;
    struct state_calls *state;
    struct strbuf openapi;        /* what /openapi.json answers */
    struct admin_keys admin_keys; /* of the calls that change adapters; none: nobody may */
    struct serving serving;
    bool has_serving;
    char node[256]; /* this host's name, for the head */
    struct vocabulary vocabulary;
    struct bus *bus;
    bool reconnect_wanted; /* not inside the bus's own callback */
    struct engine_client engine;
    bool has_engine;
    struct tls_server *tls; /* NULL: plain HTTP */
    struct host_rule hosts, admin_hosts;
    struct metric *tls_expires;
    struct http_server *server;
    struct http_server *admin_server; /* NULL: admin routes are at the same address */
    struct loop_timer *engine_timer, *serving_timer, *shutdown_timer, *auth_timer, *tls_timer;
    bool has_said_last_words; /* every open request was ended, and told so */
    bool stopped;             /* the loop ends with this turn */
    bool stopping;   /* told to end: probes say so, requests are taken for --shutdown-delay */
    bool closed;     /* takes no new connection, and ends with its last request */
    bool has_served; /* /ping has said so once: what comes after is a failure */
};

extern const struct reply_ops gateway_reply_ops;
