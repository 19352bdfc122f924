#include "gateway/http/routes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/version.h"
#include "common/http/handlers/admin.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/messages.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/http/access.h"
#include "gateway/http/chat_page.h"
#include "gateway/http/routes_sagemaker.h"
#include "gateway/http/state.h"
#include "gateway/sagemaker/djl.h"
#include "gateway/sagemaker/endpoint_reply.h"

#define JSON_TYPE "application/json"

/* Bytes of a body that names an adapter and its path, which is read on the loop. */
enum { MAX_SMALL_BODY = 64 << 10 };

static void answer_error(struct gateway *g, struct http_request *r, int status, const char *code,
                         const char *text)
{
    struct api_error e = {.code = code, .retry_after_s = status == 503 ? 1 : 0};
    api_error_set(&e, status, NULL, "%s", text);
    reply_error(&gateway_reply_ops, r, NULL, &e);
}

static void answer_json(struct http_request *r, struct strbuf *b)
{
    http_respond(r, 200, JSON_TYPE, strbuf_str(b), NULL, 0);
    strbuf_fini(b);
}

/* ---- handlers ---- */

static bool is_ready(void *ctx)
{
    const char *why;
    return serving_healthy(&((struct gateway *)ctx)->serving, &why);
}

static const char *why_not_ready(void *ctx)
{
    const char *why;
    (void)serving_healthy(&((struct gateway *)ctx)->serving, &why);
    return why;
}

static void get_health(struct gateway *g, struct http_request *r, const struct route *row,
                       uint64_t tenant)
{
    const char *why;
    if (serving_healthy(&g->serving, &why))
        http_respond(r, 200, NULL, STR(""), NULL, 0);
    else
        answer_error(g, r, 503, NULL, why);
}

/* Whether it is any use to send requests here, for a balancer: with no group to serve them they
 * wait, and are told so, which is better than no address to ask. */
static void get_accepting(struct gateway *g, struct http_request *r, const struct route *row,
                          uint64_t tenant)
{
    const char *why = "the gateway is shutting down";
    if (g->stopping ||
        (serving_is_of_another_model(&g->serving) && !serving_healthy(&g->serving, &why)))
        answer_error(g, r, 503, NULL, why);
    else
        http_respond(r, 200, NULL, STR(""), NULL, 0);
}

static void before_metrics(void *ctx)
{
    struct gateway *g = ctx;
    struct http_load load;
    http_server_load(g->server, &load);
    http_metrics_load(&g->http_metrics, &load);
    serving_tell_loras(&g->serving, g->key);
    metric_set(g->compiles_waiting, encode_pool_n_jobs(g->compile_pool));
}

/* /livez, /readyz, /metrics: the same answers as every process gives. */
static void get_admin(struct gateway *g, struct http_request *r, const struct route *row,
                      uint64_t tenant)
{
    struct admin_options o = {.loop = g->loop,
                              .metrics = g->metrics,
                              .ready = is_ready,
                              .why_not_ready = why_not_ready,
                              .before_metrics = before_metrics,
                              .ctx = g};
    if (!admin_handle(&o, r))
        answer_error(g, r, 404, NULL, "Not Found");
}

/* Series are labelled with the base model's name: a key that may not use it is not to read of it.
 */
static void get_metrics(struct gateway *g, struct http_request *r, const struct route *row,
                        uint64_t tenant)
{
    if (limits_allow_model(g->key, str_from(g->served_names[0])))
        get_admin(g, r, row, tenant);
    else
        answer_error(g, r, 403, NULL,
                     "This key may not use the model that the metrics are of: read them with "
                     "another key, or with the admin key.");
}

static void get_version(struct gateway *g, struct http_request *r, const struct route *row,
                        uint64_t tenant)
{
    http_respond(r, 200, JSON_TYPE, STR("{\"version\":\"" COX_VERSION "\"}"), NULL, 0);
}

static void get_openapi(struct gateway *g, struct http_request *r, const struct route *row,
                        uint64_t tenant)
{
    http_respond(r, 200, JSON_TYPE, strbuf_str(&g->openapi), NULL, 0);
}

/* The served names, then the adapters. */
static bool model_at(const struct gateway *g, size_t i, struct openai_model *out)
{
    const char *base = g->served_names[0];
    bool own = i < g->n_served_names;
    if (!own && i - g->n_served_names >= g->adapters.n_names)
        return false;
    const size_t i_adapter = own ? 0 : i - g->n_served_names;
    const char *name = own ? g->served_names[i] : g->adapters.names[i_adapter];
    *out = (struct openai_model){.name = name,
                                 .root = own ? g->config->model : g->adapters.paths[i_adapter],
                                 .parent = own ? NULL : base,
                                 .created_s = g->started_s,
                                 .max_model_len = serving_max_model_len(&g->serving)};
    return true;
}

static void get_models(struct gateway *g, struct http_request *r, const struct route *row,
                       uint64_t tenant)
{
    struct strbuf b;
    struct openai_model m;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"object\":\"list\",\"data\":[");
    bool any = false;
    for (size_t i = 0; model_at(g, i, &m); i++) {
        if (!limits_allow_model(g->key, str_from(m.name)))
            continue;
        strbuf_append_c(&b, any ? "," : "");
        openai_model(&b, &m);
        any = true;
    }
    strbuf_append_c(&b, "]}");
    answer_json(r, &b);
}

/* "org%2Fname" as "org/name": the openai package writes a name's slash so. Whatever else is escaped
 * or not is compared as it is. */
static struct str decode_name(struct str in, char *buf, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++, n++) {
        unsigned byte;
        char hex[3] = {0};
        if (n >= size)
            return in;
        buf[n] = in.ptr[i];
        if (in.ptr[i] != '%' || in.len - i < 3)
            continue;
        memcpy(hex, in.ptr + i + 1, 2);
        if (strspn(hex, "0123456789abcdefABCDEF") == 2 && sscanf(hex, "%x", &byte) == 1) {
            buf[n] = (char)byte;
            i += 2;
        }
    }
    return (struct str){buf, n};
}

static void get_model(struct gateway *g, struct http_request *r, const struct route *row,
                      uint64_t tenant)
{
    struct str path = http_path(r), prefix = STR("/v1/models/");
    char buf[512];
    struct str name =
        decode_name((struct str){path.ptr + prefix.len, path.len - prefix.len}, buf, sizeof buf);
    struct openai_model m;
    for (size_t i = 0; model_at(g, i, &m); i++) {
        if (!str_eq_c(name, m.name) || !limits_allow_model(g->key, name))
            continue;
        struct strbuf b;
        strbuf_init(&b, 0);
        openai_model(&b, &m);
        answer_json(r, &b);
        return;
    }
    struct api_error e = {.code = "model_not_found"};
    api_error_set(&e, 404, "model", "The model `%.*s` does not exist.",
                  (int)(name.len < 200 ? name.len : 200), name.ptr);
    reply_error(&gateway_reply_ops, r, NULL, &e);
}

struct serving_request routes_request(struct gateway *g, struct http_request *r,
                                      const struct dialect *d, uint64_t tenant)
{
    return (struct serving_request){.dialect = d,
                                    .body = http_body(r),
                                    .tenant = tenant,
                                    .key = g->key,
                                    .request_id = str_from(http_get_id(r))};
}

static void post_prompt(struct gateway *g, struct http_request *r, const struct route *row,
                        uint64_t tenant)
{
    const struct serving_request q = routes_request(g, r, row->dialect, tenant);
    serving_on_request(&g->serving, r, &q);
}

/* OpenAI's, or on SageMaker another name for /invocations. */
static void post_chat(struct gateway *g, struct http_request *r, const struct route *row,
                      uint64_t tenant)
{
    if (g->config->sagemaker)
        sagemaker_post_invocation(g, r, row, tenant);
    else
        post_prompt(g, r, row, tenant);
}

/* What SageMaker asks is answered in DJL's words, where a request would be served. */
static void get_ping(struct gateway *g, struct http_request *r, const struct route *row,
                     uint64_t tenant)
{
    if (!sagemaker_get_ping(g, r))
        get_health(g, r, row, tenant);
}

static const char *who_asks(const struct gateway *g, const struct http_request *r)
{
    const char *who = admin_keys_who(&g->admin_keys, http_header(r, "authorization"));
    return who ? who : "";
}

static void post_load_adapter(struct gateway *g, struct http_request *r, const struct route *row,
                              uint64_t tenant)
{
    gateway_adapters_call(&g->adapters, r, true, http_body(r), who_asks(g, r), clock_mono_ns());
}

static void post_unload_adapter(struct gateway *g, struct http_request *r, const struct route *row,
                                uint64_t tenant)
{
    gateway_adapters_call(&g->adapters, r, false, http_body(r), who_asks(g, r), clock_mono_ns());
}

static void call_state(struct gateway *g, struct http_request *r, const struct route *row,
                       uint64_t tenant)
{
    struct api_error e = {0};
    /* Lines outlive their key and are not counted for one: nobody may go round its bounds so. */
    if (limits_any(g->key) && str_eq_c(http_method(r), "POST") &&
        str_eq_c(http_path(r), "/v1/batches") &&
        !api_error_set(&e, 403, NULL,
                       "This key has bounds (rate, tokens, streams, priority or models), which "
                       "batches do not keep: it makes none.")) {
        reply_error(&gateway_reply_ops, r, NULL, &e);
        return;
    }
    state_calls_on_request(g->state, r, tenant);
}

/* Responses are answered and forgotten: there is none to give, to delete or to cancel. */
static void answer_no_response(struct gateway *g, struct http_request *r, const struct route *row,
                               uint64_t tenant)
{
    struct str path = http_path(r), prefix = STR("/v1/responses/");
    struct str id = {path.ptr + prefix.len, path.len - prefix.len};
    const char *slash = memchr(id.ptr, '/', id.len);
    struct api_error e = {0};
    if (slash)
        id.len = (size_t)(slash - id.ptr);
    api_error_set(&e, 404, "response_id",
                  "Response with id '%.*s' not found: this server keeps none.",
                  (int)(id.len < 200 ? id.len : 200), id.ptr);
    reply_error(&gateway_reply_ops, r, NULL, &e);
}

/* ---- the table ---- */

static const struct route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_KEY, post_chat, &dialect_chat},
    {"POST", "/v1/completions", ACCESS_KEY, post_prompt, &dialect_completions},
    {"POST", "/v1/responses", ACCESS_KEY, post_prompt, &dialect_responses},
    {"GET", "/v1/responses/*", ACCESS_KEY, answer_no_response, NULL},
    {"DELETE", "/v1/responses/*", ACCESS_KEY, answer_no_response, NULL},
    {"POST", "/v1/responses/*/cancel", ACCESS_KEY, answer_no_response, NULL},
    {"GET", "/v1/responses/*/input_items", ACCESS_KEY, answer_no_response, NULL},
    {"POST", "/v1/embeddings", ACCESS_KEY, post_prompt, &dialect_embeddings},
    {"POST", "/v1/messages", ACCESS_KEY, post_prompt, &dialect_messages},
    {"POST", "/v1/messages/count_tokens", ACCESS_KEY, post_prompt, &dialect_count_tokens},
    {"POST", "/tokenize", ACCESS_KEY, post_prompt, &dialect_tokenize},
    {"POST", "/detokenize", ACCESS_KEY, post_prompt, &dialect_detokenize},
    {"POST", "/invocations", ACCESS_KEY, sagemaker_post_invocation, &dialect_djl},
    {"POST", "/predictions/**", ACCESS_KEY, sagemaker_post_invocation, &dialect_djl},
    {"POST", "/endpoints/**", ACCESS_KEY, sagemaker_post_endpoint, &dialect_endpoint},
    {"GET", "/v1/models", ACCESS_KEY, get_models, NULL},
    {"GET", "/v1/models/**", ACCESS_KEY, get_model, NULL},
    {"POST", "/v1/files", ACCESS_KEY, call_state, NULL},
    {"GET", "/v1/files", ACCESS_KEY, call_state, NULL},
    {"GET", "/v1/files/*", ACCESS_KEY, call_state, NULL},
    {"GET", "/v1/files/*/content", ACCESS_KEY, call_state, NULL},
    {"DELETE", "/v1/files/*", ACCESS_KEY, call_state, NULL},
    {"POST", "/v1/batches", ACCESS_KEY, call_state, NULL},
    {"GET", "/v1/batches", ACCESS_KEY, call_state, NULL},
    {"GET", "/v1/batches/*", ACCESS_KEY, call_state, NULL},
    {"POST", "/v1/batches/*/cancel", ACCESS_KEY, call_state, NULL},
    {"POST", "/v1/load_lora_adapter", ACCESS_ADMIN, post_load_adapter, NULL},
    {"POST", "/v1/unload_lora_adapter", ACCESS_ADMIN, post_unload_adapter, NULL},
    {"GET", "/", ACCESS_OPEN, chat_page_get, NULL},
    {"GET", "/chat/*", ACCESS_OPEN, chat_page_get, NULL},
    {"GET", "/health", ACCESS_OPEN, get_health, NULL},
    {"GET", "/ready", ACCESS_OPEN, get_health, NULL},
    {"GET", "/accepting", ACCESS_OPEN, get_accepting, NULL},
    {"GET", "/ping", ACCESS_OPEN, get_ping, NULL},
    {"POST", "/ping", ACCESS_OPEN, get_ping, NULL},
    {"GET", "/execution-parameters", ACCESS_KEY, sagemaker_get_execution_parameters, NULL},
    {"GET", "/version", ACCESS_KEY, get_version, NULL},
    {"GET", "/openapi.json", ACCESS_KEY, get_openapi, NULL},
    {"GET", "/livez", ACCESS_PROBE, get_admin, NULL},
    {"GET", "/readyz", ACCESS_PROBE, get_admin, NULL},
    {"GET", "/metrics", ACCESS_METRICS, get_metrics, NULL},
};

_Static_assert(sizeof routes / sizeof *routes < HTTP_METRICS_PATHS, "each has its own counts");

const struct route *routes_all(size_t *n)
{
    *n = sizeof routes / sizeof *routes;
    return routes;
}

void routes_print(struct strbuf *out)
{
    static const char *const names[] = {[ACCESS_KEY] = "key",
                                        [ACCESS_OPEN] = "open",
                                        [ACCESS_PROBE] = "probe",
                                        [ACCESS_ADMIN] = "admin",
                                        [ACCESS_METRICS] = "metrics"};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        strbuf_printf(out, "%s %s %s\n", routes[i].method, routes[i].path, names[routes[i].access]);
}

/* A star stands for one segment, two at the end for whatever follows; neither for nothing. */
static bool path_matches(const char *pattern, struct str path)
{
    const char *at = path.ptr, *end = path.ptr + path.len;
    for (; *pattern; pattern++) {
        if (strcmp(pattern, "**") == 0)
            return at < end;
        if (*pattern != '*') {
            if (at == end || *at++ != *pattern)
                return false;
            continue;
        }
        const char *begin = at;
        while (at < end && *at != '/')
            at++;
        if (at == begin)
            return false;
    }
    return at == end;
}

enum route_result routes_find(struct str method, struct str path, const struct route **out,
                              char allow[64])
{
    bool known = false;
    allow[0] = '\0';
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *row = &routes[i];
        if (!path_matches(row->path, path))
            continue;
        if (str_eq_c(method, row->method) ||
            (str_eq_c(method, "HEAD") && strcmp(row->method, "GET") == 0)) {
            *out = row;
            allow[0] = '\0';
            return ROUTE_FOUND;
        }
        size_t n = strlen(allow);
        snprintf(allow + n, 64 - n, "%s%s", known ? ", " : "", row->method);
        known = true;
    }
    return known ? ROUTE_METHOD_NOT_ALLOWED : ROUTE_NOT_FOUND;
}

/* routes_find for this gateway: a chat page that is switched off is a path that nobody knows. */
static enum route_result find(const struct gateway *g, const struct http_request *r,
                              bool on_admin_address, const struct route **row, char allow[64])
{
    const struct gateway_config *c = g->config;
    bool page = !c->front.no_chat_page && !c->sagemaker && !on_admin_address;
    allow[0] = '\0';
    if (!page && chat_page_owns(http_path(r)))
        return ROUTE_NOT_FOUND;
    return routes_find(http_method(r), http_path(r), row, allow);
}

static void answer_with(struct http_request *r, const struct dialect *d, const struct api_error *e,
                        const char *header, const char *value)
{
    const struct http_header_kv extra = {header, value};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (d)
        d->error(&b, e, false);
    else
        api_error_json(e, &b);
    int status = d && d->status ? d->status(e) : e->http_status;
    http_respond(r, status, JSON_TYPE, strbuf_str(&b), &extra, 1);
    strbuf_fini(&b);
}

/* The dialect of a path that has no row: Anthropic's packages read its errors alone. */
static const struct dialect *dialect_of_path(struct str path)
{
    const struct str messages = STR("/v1/messages");
    const bool is_below =
        str_starts(path, messages) && (path.len == messages.len || path.ptr[messages.len] == '/');
    return is_below ? &dialect_messages : NULL;
}

/* A path that nobody knows, or a method that it has not: as DJL on SageMaker. */
static void answer_not_found(struct gateway *g, struct http_request *r)
{
    struct api_error e = {0};
    api_error_set(&e, 404, NULL, "Not Found");
    if (g->config->sagemaker)
        sagemaker_answer_unknown(r, 404, NULL);
    else
        reply_error(&gateway_reply_ops, r, dialect_of_path(http_path(r)), &e);
}

static void answer_not_allowed(struct http_request *r, const char *allow)
{
    struct api_error e = {0};
    api_error_set(&e, 405, NULL, "Method Not Allowed");
    answer_with(r, dialect_of_path(http_path(r)), &e, "Allow", allow);
}

static void answer_unauthorized(struct http_request *r, const struct dialect *d)
{
    struct api_error e = {.code = "invalid_api_key"};
    api_error_set(&e, 401, NULL,
                  "Incorrect or missing API key: send it as \"Authorization: Bearer KEY\", or as "
                  "\"x-api-key: KEY\".");
    answer_with(r, d, &e, "WWW-Authenticate", "Bearer");
}

static enum access_verdict verdict_of(const struct gateway *g, const struct http_request *r,
                                      const struct route *row, bool on_admin_address, bool has_key)
{
    const struct access_caller caller = {
        .on_admin_address = on_admin_address,
        .has_key = has_key,
        .has_admin_key = admin_keys_who(&g->admin_keys, http_header(r, "authorization")) != NULL};
    const struct access_rules rules = {.keys = g->auth.n_entries > 0,
                                       .admin_key = g->admin_keys.n > 0,
                                       .admin_address = g->admin_server != NULL,
                                       .metrics_public = g->config->metrics_public};
    return access_decide(&rules, &caller, row);
}

/* False: answered. */
static bool is_allowed(struct gateway *g, struct http_request *r, const struct route *row,
                       bool on_admin_address)
{
    switch (verdict_of(g, r, row, on_admin_address, g->key != NULL)) {
    case ACCESS_GRANTED:
        return true;
    case ACCESS_WANTS_KEY:
        answer_unauthorized(r, row ? row->dialect : dialect_of_path(http_path(r)));
        return false;
    case ACCESS_NOT_HERE:
        answer_not_found(g, r);
        return false;
    case ACCESS_NO_ADMIN_KEY:
        break;
    }
    answer_error(g, r, 403, NULL,
                 "Adapters cannot be changed through this gateway: it was started without "
                 "--admin-key-file. cox lora asks the head.");
    return false;
}

/* The row that lets it in, or NULL. key: its key, or NULL. */
static const struct route *row_for(struct gateway *g, const struct http_request *r,
                                   bool on_admin_address, const struct api_key **key)
{
    const struct route *row = NULL;
    char allow[64];
    if (find(g, r, on_admin_address, &row, allow) != ROUTE_FOUND ||
        host_rule_refuses(on_admin_address ? &g->admin_hosts : &g->hosts, r))
        return NULL;
    *key = auth_find(&g->auth, http_header(r, "Authorization"), http_header(r, "x-api-key"));
    return verdict_of(g, r, row, on_admin_address, *key != NULL) == ACCESS_GRANTED ? row : NULL;
}

/* The request takes the room of its key's tenant, or of its client's address. */
static void say_whose(struct http_request *r, const struct api_key *key)
{
    http_set_tenant(r, key ? key->tenant : 0);
}

/* False: answered. */
static bool is_let_in(struct gateway *g, struct http_request *r, const struct route *row,
                      bool on_admin_address)
{
    const char *why = host_rule_refuses(on_admin_address ? &g->admin_hosts : &g->hosts, r);
    if (!why)
        return true;
    struct api_error e = {0};
    api_error_set(&e, 403, NULL, "%s.", why);
    reply_error(&gateway_reply_ops, r, row ? row->dialect : NULL, &e);
    return false;
}

/* Before anything is computed: what it would be answered has no room. False: answered. */
static bool has_room(struct http_request *r, const struct route *row)
{
    if (!row || row->access != ACCESS_KEY || http_answer_has_room(r))
        return true;
    struct api_error e = {.retry_after_s = 1};
    api_error_set(
        &e, 503, NULL,
        "Too many bytes of answers wait for their readers, yours or all: read those, then "
        "try again.");
    reply_error(&gateway_reply_ops, r, row->dialect, &e);
    return false;
}

static bool has_body(const struct route *row)
{
    return row->access == ACCESS_KEY || row->access == ACCESS_ADMIN;
}

bool routes_reads_body(struct gateway *g, const struct http_request *r, bool on_admin_address)
{
    const struct api_key *key;
    const struct route *row = row_for(g, r, on_admin_address, &key);
    return row && has_body(row);
}

uint64_t routes_body_max(struct gateway *g, struct http_request *r, bool on_admin_address)
{
    const struct api_key *key = NULL;
    const struct route *row = row_for(g, r, on_admin_address, &key);
    if (!row || !has_body(row)) /* to wait for what nobody reads would be to keep a place for it */
        return 0;
    say_whose(r, key);
    return row->access == ACCESS_KEY ? UINT64_MAX : MAX_SMALL_BODY;
}

void routes_dispatch(struct gateway *g, struct http_request *r, bool on_admin_address)
{
    const struct route *row = NULL;
    char allow[64];
    if (front_begin(&g->front, r))
        return;
    enum route_result found = find(g, r, on_admin_address, &row, allow);
    g->key = auth_find(&g->auth, http_header(r, "Authorization"), http_header(r, "x-api-key"));
    struct request_note *note = front_note(r);
    if (note && g->key)
        note_copy(note->tenant, str_from(g->key->name));
    say_whose(r, g->key);
    if (!is_let_in(g, r, row, on_admin_address) ||
        !is_allowed(g, r, found == ROUTE_FOUND ? row : NULL, on_admin_address) || !has_room(r, row))
        return; /* answered */
    if (found == ROUTE_NOT_FOUND)
        answer_not_found(g, r);
    else if (found == ROUTE_METHOD_NOT_ALLOWED && g->config->sagemaker)
        sagemaker_answer_unknown(r, 405, allow);
    else if (found == ROUTE_METHOD_NOT_ALLOWED)
        answer_not_allowed(r, allow);
    else
        row->handle(g, r, row, g->key ? g->key->tenant : 0);
    g->key = NULL;
}
