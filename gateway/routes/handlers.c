/* Handles the routes, except for SageMaker's and the chat page's.
 * dispatch.c calls a handler after all checks. Short answers are written at once. Requests for
 * tokens are passed to serving, files and batches to batches/, and adapters to
 * serving/adapters.c.
 * `struct call` is borrowed for the call. Its request lives until it is answered. A handler, or
 * the module behind it, answers exactly once. Only the loop thread calls these functions. */
#include "gateway/routes/handlers.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/version.h"
#include "common/http/handlers/admin.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/http/reply.h"
#include "gateway/routes/call.h"
#include "gateway/routes/sagemaker.h"

#define JSON_TYPE "application/json"

static void answer_json(struct http_request *r, struct strbuf *b)
{
    http_respond(r, 200, JSON_TYPE, strbuf_str(b), NULL, 0);
    strbuf_fini(b);
}

void route_get_health(struct api_server *a, const struct call *c)
{
    const char *why;
    if (serving_healthy(&a->serving, &why))
        http_respond(c->request, 200, NULL, STR(""), NULL, 0);
    else
        call_error(c->request, 503, NULL, why);
}

/* Reports to a load balancer whether it may send requests to this gateway. Without a ready
 * replica requests wait and get an error with the reason, which is better for a client than no
 * address. */
void route_get_accepting(struct api_server *a, const struct call *c)
{
    const char *why = "the gateway is shutting down";
    if (a->stopping ||
        (serving_is_of_another_model(&a->serving) && !serving_healthy(&a->serving, &why)))
        call_error(c->request, 503, NULL, why);
    else
        http_respond(c->request, 200, NULL, STR(""), NULL, 0);
}

struct metrics_reader { /* the reader of /metrics */
    struct api_server *a;
    const struct api_key *key;
};

static bool is_ready(void *ctx)
{
    const char *why;
    return serving_healthy(&((struct metrics_reader *)ctx)->a->serving, &why);
}

static const char *why_not_ready(void *ctx)
{
    const char *why;
    (void)serving_healthy(&((struct metrics_reader *)ctx)->a->serving, &why);
    return why;
}

static void before_metrics(void *ctx)
{
    const struct metrics_reader *m = ctx;
    struct http_load load;
    http_server_load(m->a->server, &load);
    http_metrics_load(&m->a->http_metrics, &load);
    serving_tell_loras(&m->a->serving, m->key);
    metric_set(m->a->compiles_waiting, encode_pool_n_jobs(m->a->compile_pool));
}

/* Serves /livez, /readyz and /metrics with the same answers as every other process. */
void route_get_admin(struct api_server *a, const struct call *c)
{
    struct metrics_reader m = {a, c->key};
    struct admin_options o = {.loop = a->loop,
                              .metrics = a->metrics,
                              .ready = is_ready,
                              .why_not_ready = why_not_ready,
                              .before_metrics = before_metrics,
                              .ctx = &m};
    if (!admin_handle(&o, c->request))
        call_error(c->request, 404, NULL, "Not Found");
}

/* Refuses metrics to a key that may not use the base model, because the series contain its name. */
void route_get_metrics(struct api_server *a, const struct call *c)
{
    if (limits_allow_model(c->key, str_from(a->served_names[0])))
        route_get_admin(a, c);
    else
        call_error(c->request, 403, NULL,
                   "This API key may not use the model that these metrics describe. Read them with "
                   "another key, or with the admin key.");
}

void route_get_version(struct api_server *a, const struct call *c)
{
    http_respond(c->request, 200, JSON_TYPE, STR("{\"version\":\"" COX_VERSION "\"}"), NULL, 0);
}

void route_get_openapi(struct api_server *a, const struct call *c)
{
    http_respond(c->request, 200, JSON_TYPE, strbuf_str(&a->openapi), NULL, 0);
}

/* Sets `out` to entry i of the list of models: first the served names, then the adapters.
 * Returns false when there is no entry i. */
static bool model_at(const struct api_server *a, size_t i, struct openai_model *out)
{
    const char *base = a->served_names[0];
    bool own = i < a->n_served_names;
    if (!own && i - a->n_served_names >= a->adapters.n_names)
        return false;
    const size_t i_adapter = own ? 0 : i - a->n_served_names;
    const char *name = own ? a->served_names[i] : a->adapters.names[i_adapter];
    *out = (struct openai_model){.name = name,
                                 .root = own ? a->config->model : a->adapters.paths[i_adapter],
                                 .parent = own ? NULL : base,
                                 .created_s = a->started_s,
                                 .max_model_len = serving_max_model_len(&a->serving)};
    return true;
}

void route_get_models(struct api_server *a, const struct call *c)
{
    struct strbuf b;
    struct openai_model m;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"object\":\"list\",\"data\":[");
    bool any = false;
    for (size_t i = 0; model_at(a, i, &m); i++) {
        if (!limits_allow_model(c->key, str_from(m.name)))
            continue;
        strbuf_append_c(&b, any ? "," : "");
        openai_model(&b, &m);
        any = true;
    }
    strbuf_append_c(&b, "]}");
    answer_json(c->request, &b);
}

/* Decodes "org%2Fname" to "org/name", because the openai package escapes a slash in this way.
 * Other escapes are compared without decoding. */
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

void route_get_model(struct api_server *a, const struct call *c)
{
    struct str path = http_path(c->request), prefix = STR("/v1/models/");
    char buf[512];
    struct str name =
        decode_name((struct str){path.ptr + prefix.len, path.len - prefix.len}, buf, sizeof buf);
    struct openai_model m;
    for (size_t i = 0; model_at(a, i, &m); i++) {
        if (!str_eq_c(name, m.name) || !limits_allow_model(c->key, name))
            continue;
        struct strbuf b;
        strbuf_init(&b, 0);
        openai_model(&b, &m);
        answer_json(c->request, &b);
        return;
    }
    struct api_error e = {.code = "model_not_found"};
    api_error_set(&e, 404, "model", "The model `%.*s` does not exist.",
                  (int)(name.len < 200 ? name.len : 200), name.ptr);
    reply_error(&http_reply_ops, c->request, NULL, &e);
}

void route_post_prompt(struct api_server *a, const struct call *c)
{
    const struct serving_request q = call_serving(c, c->row->dialect);
    serving_on_request(&a->serving, c->request, &q);
}

/* Serves chat completions in OpenAI's form. On SageMaker this path is another name for
 * /invocations. */
void route_post_chat(struct api_server *a, const struct call *c)
{
    if (a->config->sagemaker)
        sagemaker_post_invocation(a, c);
    else
        route_post_prompt(a, c);
}

/* Answers SageMaker's probe in DJL's form, and any other probe like /health. */
void route_get_ping(struct api_server *a, const struct call *c)
{
    if (!sagemaker_get_ping(a, c->request))
        route_get_health(a, c);
}

static const char *who_asks(const struct api_server *a, const struct http_request *r)
{
    const char *who = admin_keys_who(&a->admin_keys, http_header(r, "authorization"));
    return who ? who : "";
}

void route_post_load_adapter(struct api_server *a, const struct call *c)
{
    gateway_adapters_call(&a->adapters, c->request, true, http_body(c->request),
                          who_asks(a, c->request), clock_mono_ns());
}

void route_post_unload_adapter(struct api_server *a, const struct call *c)
{
    gateway_adapters_call(&a->adapters, c->request, false, http_body(c->request),
                          who_asks(a, c->request), clock_mono_ns());
}

void route_files_and_batches(struct api_server *a, const struct call *c)
{
    struct api_error e = {0};
    /* Lines of a batch live longer than their key and are not counted for it, so a limited key
     * could bypass its limits. */
    if (limits_any(c->key) && str_eq_c(http_method(c->request), "POST") &&
        str_eq_c(http_path(c->request), "/v1/batches") &&
        !api_error_set(&e, 403, NULL,
                       "This API key has limits (rate, tokens, streams, priority or models), and "
                       "batches do not obey them. Create batches with a key that has no limits.")) {
        reply_error(&http_reply_ops, c->request, NULL, &e);
        return;
    }
    state_calls_on_request(a->state, c->request, call_tenant(c));
}

/* Answers that there is no such response: responses are not stored, so none can be read, deleted
 * or cancelled. */
void route_no_response(struct api_server *a, const struct call *c)
{
    struct str path = http_path(c->request), prefix = STR("/v1/responses/");
    struct str id = {path.ptr + prefix.len, path.len - prefix.len};
    const char *slash = memchr(id.ptr, '/', id.len);
    struct api_error e = {0};
    if (slash)
        id.len = (size_t)(slash - id.ptr);
    api_error_set(&e, 404, "response_id",
                  "Response with id '%.*s' not found: this server stores no responses.",
                  (int)(id.len < 200 ? id.len : 200), id.ptr);
    reply_error(&http_reply_ops, c->request, NULL, &e);
}
