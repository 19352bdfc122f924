#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/http/server/request.h"
#include "gateway/http/metrics.h"

/* This `http_request` is a stub of the HTTP server's request, with the members that the metrics
 * read. */
struct http_request {
    const char *method, *length;
};

struct str http_method(const struct http_request *r)
{
    return str_from(r->method);
}

struct str http_header(const struct http_request *r, const char *name)
{
    return strcmp(name, "Content-Length") == 0 ? str_from(r->length) : STR("");
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static struct strbuf rendered(struct metrics *reg)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    metrics_render(reg, &b);
    return b;
}

static void requests_are_counted_by_route_method_and_kind(void **state)
{
    struct metrics *reg = metrics_new();
    struct http_metrics m;
    http_metrics_init(&m, reg);
    const struct http_request post = {"POST", "12"}, get = {"GET", "no number"};
    const struct http_answered ok = {.status = 200, .body_bytes = 30, .duration_ns = 200000000};
    const struct http_answered gone = {.status = 499, .aborted = true};
    http_metrics_answered(&m, "/v1/completions", 1, &post, &ok);
    http_metrics_answered(&m, "/v1/completions", 1, &post, &ok);
    http_metrics_answered(&m, "/v1/completions", 1, &post, &gone);
    http_metrics_answered(&m, NULL, 0, &get, &gone);
    http_metrics_answered(&m, "/metrics", 3, &get, &ok);
    struct strbuf b = rendered(reg);
    static const char *const want[] = {
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 2\n",
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 1\n",
        "http_requests_total{handler=\"none\",method=\"GET\",status=\"4xx\"} 1\n",
        "http_request_duration_seconds_bucket{handler=\"/v1/"
        "completions\",method=\"POST\",le=\"0.1\"} "
        "1\n",
        "http_request_duration_seconds_count{handler=\"/v1/completions\",method=\"POST\"} 3\n",
        "http_request_duration_highr_seconds_count 4\n",
        "http_request_size_bytes_sum{handler=\"/v1/completions\"} 36\n",
        "http_request_size_bytes_sum{handler=\"none\"} 0\n",
        "http_response_size_bytes_sum{handler=\"/v1/completions\"} 60\n",
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(b.ptr, want[i]))
            fail_msg("not there: %s in\n%s", want[i], b.ptr);
    assert_null(strstr(b.ptr, "handler=\"/metrics\""));
    strbuf_fini(&b);
    metrics_free(reg);
}

/* The number of series is bounded by routes, methods and kinds, whatever clients send. */
static void clients_make_no_series(void **state)
{
    struct metrics *reg = metrics_new();
    struct http_metrics m;
    http_metrics_init(&m, reg);
    char method[16];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(method, sizeof method, "M%u", i);
        const struct http_request r = {method, ""};
        const struct http_answered a = {.status = (int)(i % 1200)};
        http_metrics_answered(&m, i % 2 ? NULL : "/a", i % 2 ? 0 : 100000, &r, &a);
    }
    struct strbuf b = rendered(reg);
    assert_int_equal(count(b.ptr, "\nhttp_requests_total{"), HTTP_METRICS_KINDS);
    assert_int_equal(count(b.ptr, "method=\"other\",status="), HTTP_METRICS_KINDS);
    assert_int_equal(count(b.ptr, "\nhttp_request_size_bytes_count{"), 1);
    strbuf_fini(&b);
    metrics_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_by_route_method_and_kind),
        cmocka_unit_test(clients_make_no_series),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
