/* Handles the routes, except for SageMaker's, the chat page's and the list of models.
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
#include "gateway/http/reply.h"
#include "gateway/routes/call.h"
#include "gateway/routes/sagemaker.h"

#define JSON_TYPE "application/json"

/* Reports to a load balancer whether it may send requests to this gateway. Without a ready
 * replica requests wait and get an error with the reason, which is better for a client than no
 * address. */
void route_get_accepting(struct api_server *a, const struct call *c)
{
    const char *why = "the gateway is shutting down";
    if (a->stopping || (model_set_is_refused(&a->models) && !model_set_healthy(&a->models, &why)))
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
    return model_set_healthy(&((struct metrics_reader *)ctx)->a->models, &why);
}

static const char *why_not_ready(void *ctx)
{
    const char *why;
    (void)model_set_healthy(&((struct metrics_reader *)ctx)->a->models, &why);
    return why;
}

static void before_metrics(void *ctx)
{
    const struct metrics_reader *m = ctx;
    struct http_load load;
    http_server_load(m->a->server, &load);
    http_metrics_load(&m->a->http_metrics, &load);
    for (uint32_t i = 0; i < m->a->models.n_listed; i++)
        serving_tell_loras(&m->a->models.listed[i]->serving, m->key);
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

/* Refuses metrics to a key that may not use every base model, because the series contain their
 * names. */
void route_get_metrics(struct api_server *a, const struct call *c)
{
    uint32_t i = 0;
    while (i < a->models.n_listed &&
           limits_allow_model(c->key, str_from(a->models.listed[i]->name)))
        i++;
    if (i == a->models.n_listed)
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

void route_post_prompt(struct api_server *a, const struct call *c)
{
    struct serving_request q = call_serving(c, c->row->dialect);
    struct api_error e = {0};
    struct serving *s = model_set_serving(&a->models, &q, &e);
    if (s)
        serving_on_request(s, c->request, &q);
    else
        reply_error(&http_reply_ops, c->request, c->row->dialect, &e);
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

/* Forwards a call about adapters to the head of the gateway's model. vLLM's call names no base
 * model, so it cannot be forwarded when there are several. */
static void order_adapter(struct api_server *a, const struct call *c, bool on)
{
    struct served_model *m = model_set_only(&a->models);
    if (m)
        gateway_adapters_call(&m->adapters, c->request, on, http_body(c->request), call_admin(a, c),
                              clock_mono_ns());
    else
        call_error(c->request, 400, NULL,
                   "This gateway has several models, and the call does not say which one gets the "
                   "adapter. Use `cox lora --address HOST:PORT` with the admin address of the "
                   "model's head.");
}

void route_post_load_adapter(struct api_server *a, const struct call *c)
{
    order_adapter(a, c, true);
}

void route_post_unload_adapter(struct api_server *a, const struct call *c)
{
    order_adapter(a, c, false);
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
