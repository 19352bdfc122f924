#include "gateway/http/metrics.h"

#include <stdio.h>
#include <string.h>

#include "common/http/server/request.h"

#define N(a) (uint32_t)(sizeof(a) / sizeof *(a))

/* `duration_bounds` are the buckets of prometheus-fastapi-instrumentator, which vLLM's server
 * uses. */
static const double duration_bounds[] = {.1, .5, 1};
static const double duration_all_bounds[] = {.01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                             2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60};
static const char *const methods[HTTP_METRICS_METHODS] = {"GET",   "POST", "DELETE",  "HEAD",
                                                          "PATCH", "PUT",  "OPTIONS", "other"};
static const char *const silent[] = {"/metrics", "/health",  "/ready", "/accepting",
                                     "/ping",    "/version", "/livez", "/readyz"};

void http_metrics_init(struct http_metrics *m, struct metrics *registry)
{
    *m = (struct http_metrics){.registry = registry};
    m->duration_all = metrics_histogram(registry, "http_request_duration_highr_seconds", "",
                                        "Latency of all requests, in seconds.", duration_all_bounds,
                                        N(duration_all_bounds));
    for (int i = 0; i < HTTP_METRICS_WAYS; i++) {
        static const char *const what[HTTP_METRICS_WAYS] = {"what=\"bodies\"", "what=\"answers\""};
        m->held[i] = metrics_gauge(registry, "coxswain_gateway_http_held_bytes", what[i],
                                   "Bytes of request bodies held now, large ones with those that "
                                   "they announce, of smaller ones and of the JSON that requests "
                                   "keep, and of answers that wait for their readers.");
        m->slow[i] = metrics_counter(registry, "coxswain_gateway_http_slow_total", what[i],
                                     "Bodies and answers given up: no byte for "
                                     "--transfer-timeout, or below --min-transfer-rate.");
        m->refused[i] = metrics_counter(registry, "coxswain_gateway_http_no_room_total", what[i],
                                        "Requests answered 503 because their body or answer had "
                                        "no room.");
    }
    m->failed_accepts = metrics_counter(registry, "coxswain_gateway_http_failed_accepts_total", "",
                                        "Connections that could not be accepted: no file "
                                        "descriptor was left; an idle one gave up its own.");
}

void http_metrics_load(struct http_metrics *m, const struct http_load *l)
{
    const struct http_counts *now = &l->counts, *told = &m->told;
    metric_set(m->held[0], (double)l->body_bytes);
    metric_set(m->held[1], (double)l->answer_bytes);
    metric_add(m->slow[0], (double)(now->slow_bodies - told->slow_bodies));
    metric_add(m->slow[1], (double)(now->slow_answers - told->slow_answers));
    metric_add(m->refused[0], (double)(now->refused_bodies - told->refused_bodies));
    metric_add(m->refused[1], (double)(now->refused_answers - told->refused_answers));
    metric_add(m->failed_accepts, (double)(now->failed_accepts - told->failed_accepts));
    m->told = *now;
}

static size_t method_of(const struct http_request *r)
{
    size_t i = 0;
    while (i + 1 < HTTP_METRICS_METHODS && !str_eq_c(http_method(r), methods[i]))
        i++;
    return i;
}

static bool is_silent(const char *path)
{
    for (size_t i = 0; path && i < N(silent); i++)
        if (strcmp(path, silent[i]) == 0)
            return true;
    return false;
}

static void count_request(struct http_metrics *m, const char *handler, size_t i_path,
                          size_t i_method, const struct http_answered *a)
{
    size_t kind = a->status >= 100 && a->status < 600 ? (size_t)a->status / 100 : 0;
    struct metric **requests = &m->requests[i_path][i_method][kind];
    struct metric **duration = &m->duration[i_path][i_method];
    struct strbuf l;
    if (!*requests) {
        char status[4] = "0xx";
        status[0] = (char)('0' + kind);
        strbuf_init(&l, 0);
        metrics_label(&l, "handler", str_from(handler));
        metrics_label(&l, "method", str_from(methods[i_method]));
        if (!*duration)
            *duration =
                metrics_histogram(m->registry, "http_request_duration_seconds", strbuf_str(&l).ptr,
                                  "Latency by handler and method, in seconds, to the last byte.",
                                  duration_bounds, N(duration_bounds));
        metrics_label(&l, "status", str_from(status));
        *requests = metrics_counter(m->registry, "http_requests_total", strbuf_str(&l).ptr,
                                    "Requests by handler, method and kind of status.");
        strbuf_fini(&l);
    }
    metric_add(*requests, 1);
    metric_observe(*duration, (double)a->duration_ns / 1e9);
}

static void count_bytes(struct http_metrics *m, const char *handler, size_t i_path,
                        const struct http_request *r, const struct http_answered *a)
{
    uint64_t length = 0;
    if (str_to_u64(http_header(r, "Content-Length"), &length) != STATUS_OK)
        length = 0;
    if (!m->request_bytes[i_path]) {
        struct strbuf l;
        strbuf_init(&l, 0);
        metrics_label(&l, "handler", str_from(handler));
        m->request_bytes[i_path] = metrics_histogram(
            m->registry, "http_request_size_bytes", strbuf_str(&l).ptr,
            "Content-Length of requests by handler; 0 where none was sent.", NULL, 0);
        m->response_bytes[i_path] =
            metrics_histogram(m->registry, "http_response_size_bytes", strbuf_str(&l).ptr,
                              "Bytes of the bodies of answers by handler.", NULL, 0);
        strbuf_fini(&l);
    }
    metric_observe(m->request_bytes[i_path], (double)length);
    metric_observe(m->response_bytes[i_path], (double)a->body_bytes);
}

void http_metrics_answered(struct http_metrics *m, const char *path, size_t i_path,
                           const struct http_request *r, const struct http_answered *a)
{
    bool known = path && i_path < HTTP_METRICS_PATHS - 1;
    const char *handler = known ? path : "none";
    if (is_silent(path))
        return;
    if (!known)
        i_path = HTTP_METRICS_PATHS - 1;
    count_request(m, handler, i_path, method_of(r), a);
    count_bytes(m, handler, i_path, r, a);
    metric_observe(m->duration_all, (double)a->duration_ns / 1e9);
}
