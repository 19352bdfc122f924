#include "gateway/routes/routes.h"

#include <stdio.h>
#include <string.h>

#include "gateway/dialects/dialects.h"
#include "gateway/http/metrics.h"
#include "gateway/routes/chat_page.h"
#include "gateway/routes/handlers.h"
#include "gateway/routes/models.h"
#include "gateway/routes/sagemaker.h"
#include "gateway/sagemaker/djl_dialects.h"
#include "gateway/sagemaker/endpoint_reply.h"

static const struct http_route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_KEY, route_post_chat, &dialect_chat},
    {"POST", "/v1/completions", ACCESS_KEY, route_post_prompt, &dialect_completions},
    {"POST", "/v1/responses", ACCESS_KEY, route_post_prompt, &dialect_responses},
    {"GET", "/v1/responses/*", ACCESS_KEY, route_no_response, NULL},
    {"DELETE", "/v1/responses/*", ACCESS_KEY, route_no_response, NULL},
    {"POST", "/v1/responses/*/cancel", ACCESS_KEY, route_no_response, NULL},
    {"GET", "/v1/responses/*/input_items", ACCESS_KEY, route_no_response, NULL},
    {"POST", "/v1/embeddings", ACCESS_KEY, route_post_prompt, &dialect_embeddings},
    {"POST", "/v1/messages", ACCESS_KEY, route_post_prompt, &dialect_messages},
    {"POST", "/v1/messages/count_tokens", ACCESS_KEY, route_post_prompt, &dialect_count_tokens},
    {"POST", "/tokenize", ACCESS_KEY, route_post_prompt, &dialect_tokenize},
    {"POST", "/detokenize", ACCESS_KEY, route_post_prompt, &dialect_detokenize},
    {"POST", "/invocations", ACCESS_KEY, sagemaker_post_invocation, &dialect_djl},
    {"POST", "/predictions/**", ACCESS_KEY, sagemaker_post_invocation, &dialect_djl},
    {"POST", "/endpoints/**", ACCESS_KEY, sagemaker_post_endpoint, &dialect_endpoint},
    {"GET", "/v1/models", ACCESS_KEY, route_get_models, NULL},
    {"GET", "/v1/models/**", ACCESS_KEY, route_get_model, NULL},
    {"POST", "/v1/files", ACCESS_KEY, route_files_and_batches, NULL},
    {"GET", "/v1/files", ACCESS_KEY, route_files_and_batches, NULL},
    {"GET", "/v1/files/*", ACCESS_KEY, route_files_and_batches, NULL},
    {"GET", "/v1/files/*/content", ACCESS_KEY, route_files_and_batches, NULL},
    {"DELETE", "/v1/files/*", ACCESS_KEY, route_files_and_batches, NULL},
    {"POST", "/v1/batches", ACCESS_KEY, route_files_and_batches, NULL},
    {"GET", "/v1/batches", ACCESS_KEY, route_files_and_batches, NULL},
    {"GET", "/v1/batches/*", ACCESS_KEY, route_files_and_batches, NULL},
    {"POST", "/v1/batches/*/cancel", ACCESS_KEY, route_files_and_batches, NULL},
    {"POST", "/v1/load_lora_adapter", ACCESS_ADMIN, route_post_load_adapter, NULL},
    {"POST", "/v1/unload_lora_adapter", ACCESS_ADMIN, route_post_unload_adapter, NULL},
    {"GET", "/admin/models", ACCESS_ADMIN, route_get_set, NULL},
    {"PATCH", "/admin/models/**", ACCESS_ADMIN, route_patch_model, NULL},
    {"PUT", "/admin/models/**", ACCESS_ADMIN, route_put_model, NULL},
    {"DELETE", "/admin/models/**", ACCESS_ADMIN, route_delete_model, NULL},
    {"PUT", "/admin/routes/**", ACCESS_ADMIN, route_put_route, NULL},
    {"DELETE", "/admin/routes/**", ACCESS_ADMIN, route_delete_route, NULL},
    {"GET", "/", ACCESS_OPEN, chat_page_get, NULL},
    {"GET", "/chat/*", ACCESS_OPEN, chat_page_get, NULL},
    {"GET", "/health", ACCESS_OPEN, route_get_health, NULL},
    {"GET", "/ready", ACCESS_OPEN, route_get_health, NULL},
    {"GET", "/accepting", ACCESS_OPEN, route_get_accepting, NULL},
    {"GET", "/ping", ACCESS_OPEN, route_get_ping, NULL},
    {"POST", "/ping", ACCESS_OPEN, route_get_ping, NULL},
    {"GET", "/execution-parameters", ACCESS_KEY, sagemaker_get_execution_parameters, NULL},
    {"GET", "/version", ACCESS_KEY, route_get_version, NULL},
    {"GET", "/openapi.json", ACCESS_KEY, route_get_openapi, NULL},
    {"GET", "/livez", ACCESS_PROBE, route_get_admin, NULL},
    {"GET", "/readyz", ACCESS_PROBE, route_get_admin, NULL},
    {"GET", "/metrics", ACCESS_METRICS, route_get_metrics, NULL},
};

_Static_assert(sizeof routes / sizeof *routes < HTTP_METRICS_PATHS, "each has its own counts");

const struct http_route *routes_all(size_t *n)
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

/* Compares a path with a pattern. * stands for one segment, and ** at the end stands for any
 * rest. Neither matches an empty text. */
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

enum route_result routes_find(struct str method, struct str path, const struct http_route **out,
                              char allow[64])
{
    bool known = false;
    allow[0] = '\0';
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct http_route *row = &routes[i];
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
