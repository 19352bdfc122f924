/* Handles DJL Serving's paths, and the paths of SageMaker's runtime, which usually forwards to
 * them.
 * dispatch.c calls these handlers. Headers, attributes or the path name the model and the
 * adapter. Then the body is passed to serving with a dialect of DJL's form
 * (sagemaker/djl_dialects.c) and the reply of the caller's protocol.
 * Every refusal has the form that the caller's protocol expects. Only `has_served` is kept
 * between requests. Only the loop thread calls these functions. */
#include "gateway/routes/sagemaker.h"

#include <string.h>

#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/http/reply.h"
#include "gateway/routes/call.h"
#include "gateway/sagemaker/djl_dialects.h"
#include "gateway/sagemaker/djl_error.h"
#include "gateway/sagemaker/djl_headers.h"
#include "gateway/sagemaker/endpoint_reply.h"

#define JSON_TYPE "application/json"

/* `TRANSFORM_TOTAL_MB` limits the MB that a batch transform job may have in flight: requests ×
 * MB per request. */
enum { TRANSFORM_TOTAL_MB = 100 };
enum { MAX_MODEL = 255 }; /* most bytes of the name of a model or adapter */

static const struct dialect *form_of(const struct api_server *a)
{
    static const struct dialect *const forms[] = {[INVOCATIONS_ROLLING] = &dialect_djl,
                                                  [INVOCATIONS_ASYNC] = &dialect_djl_async,
                                                  [INVOCATIONS_STATIC] = &dialect_djl_static,
                                                  [INVOCATIONS_TGI] = &dialect_djl_tgi};
    return forms[a->config->invocations];
}

static void refuse(const struct reply_ops *ops, struct http_request *r, const struct dialect *d,
                   int status, const char *what, struct str name)
{
    struct api_error e = {0};
    api_error_set(&e, status, NULL, "%s`%.*s`", what, (int)(name.len < 200 ? name.len : 200),
                  name.ptr);
    reply_error(ops, r, d, &e);
}

/* Returns true for a property "handler". In DJL it would choose the function that runs in
 * model.py. This server lets no client do so. */
static bool has_handler(const struct djl_headers *h)
{
    struct str v;
    return djl_attribute(h->attributes, "handler", &v);
}

static struct djl_headers headers_of(const struct http_request *r)
{
    return (struct djl_headers){
        .adapter_id = http_header(r, "X-Amzn-SageMaker-Adapter-Identifier"),
        .attributes = http_header(r, "X-Amzn-SageMaker-Custom-Attributes"),
        .query = http_query(r),
    };
}

static bool is_served(const struct api_server *a, struct str name)
{
    return model_names_find(&a->models.names, name) != NULL;
}

/* Returns NAME of /predictions/NAME or /predictions/NAME/VERSION; "" for other paths. */
static struct str predicted_model(struct str path)
{
    struct str prefix = STR("/predictions/");
    if (path.len <= prefix.len || memcmp(path.ptr, prefix.ptr, prefix.len) != 0)
        return STR("");
    struct str name = {path.ptr + prefix.len, path.len - prefix.len};
    const char *slash = memchr(name.ptr, '/', name.len);
    return slash ? (struct str){name.ptr, (size_t)(slash - name.ptr)} : name;
}

/* Returns true when the request names another model: model_name in a header, an attribute or the
 * query, or the path. A gateway of one model only checks the name. In a path the name
 * may be "model", DJL's name for the container's model. */
static bool names_another(const struct api_server *a, struct http_request *r,
                          const struct djl_headers *h, struct str *name)
{
    *name = predicted_model(http_path(r));
    if (name->len > 0 && !str_eq_c(*name, "model") && !is_served(a, *name))
        return true;
    *name = http_header(r, "model_name");
    if (!djl_query_value(h->query, "model_name", name) && name->len == 0)
        (void)djl_attribute(h->attributes, "model_name", name);
    return name->len > 0 && !is_served(a, *name);
}

/* Gives the request to the model that it names. */
static void give(struct api_server *a, struct http_request *r, struct serving_request *q,
                 const struct dialect *d)
{
    struct api_error e = {.code = DJL_FRONT_END};
    struct serving *s = model_set_serving(&a->models, q, &e);
    if (s)
        serving_on_request(s, r, q);
    else
        reply_error(q->reply_ops, r, d, &e);
}

/* Handles a request for tokens. `model` is the name from the endpoint's headers, or "". */
static void invoke(struct api_server *a, const struct call *c, const struct reply_ops *ops,
                   struct str model)
{
    struct http_request *r = c->request;
    const struct djl_headers h = headers_of(r);
    const struct dialect *d = form_of(a);
    struct serving_request q = call_serving(c, d);
    struct str other;
    q.reply_ops = ops;
    q.model = djl_adapter(&h);
    if (q.model.len == 0)
        q.model = model;
    if (has_handler(&h)) {
        struct api_error e = {.code = DJL_FRONT_END};
        api_error_set(&e, 400, NULL,
                      "The property \"handler\" is not allowed: this server runs no model.py.");
        reply_error(ops, r, d, &e);
    } else if (names_another(a, r, &h, &other)) {
        struct api_error e = {.code = DJL_FRONT_END};
        api_error_set(&e, 404, NULL, "Model not found: %.*s",
                      (int)(other.len < 200 ? other.len : 200), other.ptr);
        reply_error(ops, r, d, &e);
    } else if (a->models.path && q.model.len == 0 && other.len > 0 && is_served(a, other)) {
        q.model = other;
        give(a, r, &q, d);
    } else if (q.model.len > MAX_MODEL) {
        refuse(ops, r, d, 404, "There is no adapter ", q.model);
    } else {
        give(a, r, &q, d);
    }
}

void sagemaker_post_invocation(struct api_server *a, const struct call *c)
{
    invoke(a, c, &http_reply_ops, STR(""));
}

/* ---- the runtime in front of the container ---- */

/* Returns the reply functions for "/endpoints/NAME/…", or NULL when the path is unknown. Every
 * NAME stands for this deployment. */
static const struct reply_ops *endpoint_of(struct str path)
{
    struct str prefix = STR("/endpoints/");
    struct str rest = {path.ptr + prefix.len, path.len - prefix.len};
    const char *slash = memchr(rest.ptr, '/', rest.len);
    if (!slash || slash == rest.ptr)
        return NULL;
    struct str what = {slash, rest.len - (size_t)(slash - rest.ptr)};
    if (str_eq_c(what, "/invocations"))
        return &endpoint_whole_ops;
    return str_eq_c(what, "/invocations-response-stream") ? &endpoint_stream_ops : NULL;
}

/* Returns true when `name` is a known name. A key without access to it gets the same answer as
 * for an unknown name. */
static bool is_ours(const struct api_server *a, const struct call *c, struct str name)
{
    return limits_allow_model(c->key, name) && model_set_find(&a->models, name);
}

/* Returns the name of an inference component, or of the file of a multi-model endpoint. This
 * server takes the name as a model or an adapter. */
static struct str asked_model(struct http_request *r)
{
    struct str name = http_header(r, "X-Amzn-SageMaker-Inference-Component"), end = STR(".tar.gz");
    if (name.len > 0)
        return name;
    name = http_header(r, "X-Amzn-SageMaker-Target-Model");
    if (name.len > 0 && *name.ptr == '/')
        name = (struct str){name.ptr + 1, name.len - 1};
    if (name.len > end.len && memcmp(name.ptr + name.len - end.len, end.ptr, end.len) == 0)
        name.len -= end.len;
    return name;
}

void sagemaker_post_endpoint(struct api_server *a, const struct call *c)
{
    struct http_request *r = c->request;
    const struct reply_ops *ops = endpoint_of(http_path(r));
    struct str variant = http_header(r, "X-Amzn-SageMaker-Target-Variant"), model = asked_model(r);
    if (http_get_id(r)[0])
        http_add_header(r, "x-amzn-RequestId", http_get_id(r));
    if (!ops)
        endpoint_refuse(r, 404, "UnknownOperationException",
                        "There is no such operation: an endpoint has only /invocations and "
                        "/invocations-response-stream.");
    else if (variant.len > 0 && !str_eq_c(variant, "AllTraffic"))
        endpoint_refuse(r, 400, "ValidationError",
                        "There is no such variant: this endpoint has only the variant AllTraffic.");
    else if (model.len > 0 && !is_ours(a, c, model))
        endpoint_refuse(r, 400, "ValidationError",
                        "There is no model or adapter with the name of the requested inference "
                        "component or target model.");
    else
        invoke(a, c, ops, model);
}

/* ---- health and unknown paths ---- */

static void respond(struct http_request *r, int status, struct strbuf *b,
                    const struct http_header_kv *extra)
{
    http_respond(r, status, JSON_TYPE, strbuf_str(b), extra, extra != NULL);
    strbuf_fini(b);
}

bool sagemaker_get_ping(struct api_server *a, struct http_request *r)
{
    const char *why;
    struct strbuf b;
    bool healthy = model_set_healthy(&a->models, &why);
    if (!a->config->sagemaker || (!healthy && !a->has_served))
        return false;
    a->has_served = true;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\n  ");
    strbuf_append_json(&b, str_from(a->models.listed[0]->name));
    strbuf_printf(&b, ": {\n    \"status\": \"%s\"\n  }\n}\n", healthy ? "Healthy" : "Unhealthy");
    respond(r, healthy ? 200 : 500, &b, NULL);
    return true;
}

/* Returns the size of the longest prompt in JSON, in MB: at most the largest body, and at most
 * TRANSFORM_TOTAL_MB. A token is about two characters, each up to six bytes as a \u escape.
 * Other members of the request add little. */
static uint64_t payload_mb(const struct api_server *a)
{
    enum { TOKEN_BYTES = 12 };
    const uint64_t most = a->config->max_body_bytes >> 20;
    uint64_t mb = 1 + ((uint64_t)model_set_max_len(&a->models) * TOKEN_BYTES >> 20);
    if (most > 0 && mb > most)
        mb = most;
    return mb < TRANSFORM_TOTAL_MB ? mb : TRANSFORM_TOTAL_MB;
}

void sagemaker_get_execution_parameters(struct api_server *a, const struct call *c)
{
    const uint64_t mb = payload_mb(a);
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b,
                  "{\"MaxConcurrentTransforms\":%llu,\"BatchStrategy\":\"SingleRecord\","
                  "\"MaxPayloadInMB\":%llu}",
                  (unsigned long long)(TRANSFORM_TOTAL_MB / mb), (unsigned long long)mb);
    respond(c->request, 200, &b, NULL);
}

void sagemaker_answer_unknown(struct http_request *r, int status, const char *allow)
{
    const struct http_header_kv header = {"Allow", allow};
    struct api_error e = {.code = DJL_FRONT_END};
    struct strbuf b;
    api_error_set(&e, status, NULL, "Requested %s, please refer to API document.",
                  status == 405 ? "method is not allowed" : "resource is not found");
    strbuf_init(&b, 0);
    djl_front_end_error(&b, &e, status);
    strbuf_append_c(&b, "\n");
    respond(r, status, &b, allow ? &header : NULL);
}
