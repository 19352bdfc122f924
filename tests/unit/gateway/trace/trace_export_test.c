/* Tests the export of spans to a collector that accepts them, and to one that never answers. */
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/trace/export.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/http/server/server.h"

enum { N_SPANS = 6000, AT_ONCE_MAX = 2048 };

struct collector {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *stop;
    pthread_t thread;
    char url[64];
    bool silent;
    atomic_uint n_spans;
};

static void on_request(void *ctx, struct http_request *r)
{
    struct collector *c = ctx;
    if (c->silent)
        return;
    struct str body = http_body(r);
    json_t *j = json_loadb(body.ptr, body.len, 0, NULL);
    json_t *of = json_array_get(json_object_get(j, "resourceSpans"), 0);
    json_t *scope = json_array_get(json_object_get(of, "scopeSpans"), 0);
    atomic_fetch_add(&c->n_spans, (unsigned)json_array_size(json_object_get(scope, "spans")));
    json_decref(j);
    http_respond(r, 200, "application/json", STR("{}"), NULL, 0);
}

static void on_abort(void *ctx, struct http_request *r)
{
}

static void on_stop(void *ctx)
{
    loop_stop(((struct collector *)ctx)->loop);
}

static void *serve(void *ctx)
{
    loop_run(((struct collector *)ctx)->loop);
    return NULL;
}

static void collector_start(struct collector *c, bool silent)
{
    struct http_options o = {.host = "127.0.0.1", .server_name = "test"};
    struct http_handlers h = {.ctx = c, .on_request = on_request, .on_abort = on_abort};
    *c = (struct collector){.silent = silent};
    assert_int_equal(loop_new(&c->loop, NULL), STATUS_OK);
    assert_int_equal(http_server_start(c->loop, &o, &h, &c->server, NULL), STATUS_OK);
    c->stop = loop_wakeup_new(c->loop, on_stop, c);
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%u", http_server_port(c->server));
    assert_int_equal(pthread_create(&c->thread, NULL, serve, c), 0);
}

static void collector_stop(struct collector *c)
{
    loop_wake(c->stop);
    pthread_join(c->thread, NULL);
    http_server_close(c->server);
    loop_free(c->loop);
}

/* Every span is delivered once or counted as dropped. The number of waiting spans is bounded
 * while no answer arrives. */
static void spans_are_delivered_or_counted(void **state)
{
    for (int silent = 0; silent < 2; silent++) {
        struct collector c;
        struct metrics *reg = metrics_new();
        struct trace_export *t = NULL;
        struct error err = {0};
        struct access_record record = {.model = "m", .id = "cmpl-1"};
        trace_context_begin(&record.trace, (const uint8_t[TRACE_ID_BYTES]){1}, 1);
        collector_start(&c, silent);
        const struct trace_export_options o = {c.url, "service", "host"};
        assert_int_equal(trace_export_new(&o, reg, &t, &err), STATUS_OK);
        const struct metric *exported =
            metrics_counter(reg, "coxswain_gateway_spans_exported_total", "", "");
        const struct metric *dropped =
            metrics_counter(reg, "coxswain_gateway_spans_dropped_total", "", "");
        for (uint32_t i = 0; i < N_SPANS; i++)
            trace_export_add(t, &record, 200, false, 1);
        if (silent) /* some spans wait, and some are being sent */
            assert_true(metric_value(dropped) >= N_SPANS - 2 * AT_ONCE_MAX);
        while (!silent && metric_value(exported) + metric_value(dropped) < N_SPANS)
            usleep(1000);
        trace_export_free(t);
        collector_stop(&c);
        assert_int_equal(metric_value(exported), atomic_load(&c.n_spans));
        assert_int_equal(metric_value(exported) + metric_value(dropped), N_SPANS);
        assert_true(silent ? metric_value(exported) == 0 : metric_value(exported) >= AT_ONCE_MAX);
        metrics_free(reg);
    }
}

static void no_endpoint_is_no_thread(void **state)
{
    struct metrics *reg = metrics_new();
    struct trace_export *t = NULL;
    struct error err = {0};
    const struct trace_export_options o = {"https://a", "service", "host"};
    assert_int_equal(trace_export_new(&o, reg, &t, &err), STATUS_INVALID);
    assert_non_null(strstr(
        err.text, "--otlp-traces-endpoint https://a: Coxswain cannot send data over https://"));
    assert_null(t);
    trace_export_free(NULL);
    metrics_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_delivered_or_counted),
        cmocka_unit_test(no_endpoint_is_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
