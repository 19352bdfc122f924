/* Tests POSTs from a thread: URLs as people write them, and servers that answer or stay silent. */
#include "common/http/client/post.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/http/server/server.h"

static void addresses(void **state)
{
    static const struct {
        /* URL and its parts; host NULL = refused, with `path` in the error */
        const char *url, *host, *port, *path;
    } cases[] = {
        {"http://collector:4318", "collector", "4318", "/v1/traces"},
        {"http://collector:4318/", "collector", "4318", "/v1/traces"},
        {"http://10.0.0.1/a/b?c=d", "10.0.0.1", "80", "/a/b?c=d"},
        {"http://[::1]:4318/x", "::1", "4318", "/x"},
        {"http://[::1]", "::1", "80", "/v1/traces"},
        {"https://collector:4318", NULL, NULL, "cannot send data over https://"},
        {"grpc://collector:4317", NULL, NULL, "cannot send data over gRPC"},
        {"collector:4318", NULL, NULL, "must have the form http://"},
        {"", NULL, NULL, "must have the form http://"},
        {"http://", NULL, NULL, "must have the form http://"},
        {"http://:4318", NULL, NULL, "must have the form http://"},
        {"http://a:", NULL, NULL, "must have the form http://"},
        {"http://a:0", NULL, NULL, "from 1 to 65535"},
        {"http://a:65536", NULL, NULL, "from 1 to 65535"},
        {"http://a:99999999999999999999999", NULL, NULL, "from 1 to 65535"},
        {"http://a:4318x", NULL, NULL, "must have the form http://"},
        {"http://[::1", NULL, NULL, "must have the form http://"},
        {"http://[::1]4318", NULL, NULL, "must have the form http://"},
        {"http://[]", NULL, NULL, "must have the form http://"},
        {"http://user:secret@a:4318", NULL, NULL, "must have the form http://"},
        {"http://a/b c", NULL, NULL, "must have the form http://"},
        {"http://a/\r\nX: y", NULL, NULL, "must have the form http://"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_target t;
        struct error err = {0};
        enum status s = http_target_parse(str_from(cases[i].url), "/v1/traces", &t, &err);
        if ((s == STATUS_OK) != (cases[i].host != NULL))
            fail_msg("%s: %d %s", cases[i].url, (int)s, err.text);
        if (s != STATUS_OK && !strstr(err.text, cases[i].path))
            fail_msg("%s: %s", cases[i].url, err.text);
        if (s != STATUS_OK)
            continue;
        assert_string_equal(t.host, cases[i].host);
        assert_string_equal(t.port, cases[i].port);
        assert_string_equal(t.path, cases[i].path);
    }
    char url[2048] = "http://a/";
    memset(url + 9, 'x', sizeof url - 10);
    struct http_target t;
    assert_int_equal(http_target_parse(str_from(url), "/", &t, NULL), STATUS_INVALID);
    memset(url + 7, 'x', sizeof url - 8);
    assert_int_equal(http_target_parse(str_from(url), "/", &t, NULL), STATUS_INVALID);
}

struct served {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *stop;
    pthread_t thread;
    char seen[256];
    size_t n_body;
};

static void on_request(void *ctx, struct http_request *r)
{
    struct served *s = ctx;
    uint64_t status;
    snprintf(s->seen, sizeof s->seen, STR_FMT " " STR_FMT " " STR_FMT, STR_ARG(http_method(r)),
             STR_ARG(http_path(r)), STR_ARG(http_header(r, "Content-Type")));
    s->n_body = http_body(r).len;
    struct str path = http_path(r);
    if (str_to_u64((struct str){path.ptr + 1, path.len - 1}, &status) == STATUS_OK)
        http_respond(r, (int)status, "text/plain", STR("an answer"), NULL, 0);
}

static void on_abort(void *ctx, struct http_request *r)
{
}

static void on_stop(void *ctx)
{
    loop_stop(((struct served *)ctx)->loop);
}

static void *serve(void *ctx)
{
    loop_run(((struct served *)ctx)->loop);
    return NULL;
}

static void a_server_answers_or_does_not(void **state)
{
    static char body[3 << 20];
    static struct served s;
    static atomic_bool stop;
    struct http_options o = {.host = "127.0.0.1", .server_name = "test"};
    struct http_handlers h = {.ctx = &s, .on_request = on_request, .on_abort = on_abort};
    assert_int_equal(loop_new(&s.loop, NULL), STATUS_OK);
    assert_int_equal(http_server_start(s.loop, &o, &h, &s.server, NULL), STATUS_OK);
    s.stop = loop_wakeup_new(s.loop, on_stop, &s);
    unsigned port = http_server_port(s.server);
    assert_int_equal(pthread_create(&s.thread, NULL, serve, &s), 0);
    static const struct {
        const char *path;
        size_t n_body;
        uint32_t timeout_ms;
        bool stop;
        enum status want;
        int status;
    } cases[] = {
        {"/200", 10, 10000, false, STATUS_OK, 200},
        {"/503", 0, 10000, false, STATUS_OK, 503},
        {"/200", sizeof body, 10000, false, STATUS_OK, 200},
        {"/silent", 1, 300, false, STATUS_TIMEOUT, 0},
        {"/silent", 1, 3600000, true, STATUS_TIMEOUT, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char url[64];
        int status = 0;
        struct http_target t;
        struct error err = {0};
        snprintf(url, sizeof url, "http://127.0.0.1:%u%s", port, cases[i].path);
        assert_int_equal(http_target_parse(str_from(url), "/", &t, &err), STATUS_OK);
        atomic_store(&stop, cases[i].stop);
        const struct http_post p = {.to = &t,
                                    .content_type = "application/json",
                                    .body = {body, cases[i].n_body},
                                    .timeout_ms = cases[i].timeout_ms,
                                    .stop = &stop};
        enum status got = http_post(&p, &status, &err);
        if (got != cases[i].want || status != cases[i].status)
            fail_msg("case %zu: %d %d %s", i, (int)got, status, err.text);
        if (cases[i].stop)
            assert_non_null(strstr(err.text, "was stopped"));
    }
    loop_wake(s.stop);
    pthread_join(s.thread, NULL);
    assert_string_equal(s.seen, "POST /silent application/json");
    http_server_close(s.server);
    loop_free(s.loop);
    struct http_target t;
    struct error err = {0};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    assert_int_equal(http_target_parse(str_from(url), "/x", &t, &err), STATUS_OK);
    const struct http_post p = {.to = &t, .content_type = "a/b", .timeout_ms = 5000};
    int status = 0;
    assert_int_equal(http_post(&p, &status, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "refused"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(a_server_answers_or_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
