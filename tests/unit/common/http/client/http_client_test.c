/* Tests the blocking HTTP client. Our own server runs on a thread and answers with the request
 * that it received. The tests call the client and compare status, body and error. A call must
 * end within its time-out, and an answer must not grow beyond the buffer's limit. */
#include "common/http/client/client.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/http/server/server.h"

struct served {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *stop;
    pthread_t thread;
    char url[64];
};

/* Answers with the request as "METHOD PATH AUTHORIZATION CONTENT-TYPE BODY". */
static void on_request(void *ctx, struct http_request *r)
{
    struct strbuf b;
    if (str_eq_c(http_path(r), "/silent"))
        return; /* the handler sends no answer and waits until the client disconnects */
    if (str_eq_c(http_path(r), "/stream")) {
        http_stream_begin(r, 200, "text/event-stream", NULL, 0);
        http_stream_write(r, STR("one."));
        http_stream_write(r, STR("two."));
        http_stream_end(r);
        return;
    }
    strbuf_init(&b, 0);
    strbuf_printf(&b, STR_FMT " " STR_FMT " " STR_FMT " " STR_FMT " " STR_FMT,
                  STR_ARG(http_method(r)), STR_ARG(http_path(r)),
                  STR_ARG(http_header(r, "Authorization")), STR_ARG(http_header(r, "Content-Type")),
                  STR_ARG(http_body(r)));
    http_respond(r, str_eq_c(http_path(r), "/missing") ? 404 : 200, "text/plain", strbuf_str(&b),
                 NULL, 0);
    strbuf_fini(&b);
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

static int start(void **state)
{
    static struct served s;
    struct http_options o = {.host = "127.0.0.1", .server_name = "test"};
    struct http_handlers h = {.ctx = &s, .on_request = on_request, .on_abort = on_abort};
    assert_int_equal(loop_new(&s.loop, NULL), STATUS_OK);
    assert_int_equal(http_server_start(s.loop, &o, &h, &s.server, NULL), STATUS_OK);
    s.stop = loop_wakeup_new(s.loop, on_stop, &s);
    snprintf(s.url, sizeof s.url, "http://127.0.0.1:%u", http_server_port(s.server));
    *state = &s;
    return pthread_create(&s.thread, NULL, serve, &s);
}

static int stop(void **state)
{
    struct served *s = *state;
    loop_wake(s->stop);
    pthread_join(s->thread, NULL);
    http_server_close(s->server);
    loop_free(s->loop);
    return 0;
}

static void test_calls(void **state)
{
    static const struct {
        const char *method, *path, *bearer, *body, *want;
        int status;
    } cases[] = {
        {NULL, "/x", NULL, "", "GET /x   ", 200},
        {NULL, "/x", "key-1", "{}", "POST /x Bearer key-1 application/json {}", 200},
        {"DELETE", "/x", NULL, "", "DELETE /x   ", 200},
        {NULL, "/missing", NULL, "", "GET /missing   ", 404},
    };
    const struct served *s = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char url[128];
        int status = -1;
        struct strbuf answer;
        struct error err = {0};
        snprintf(url, sizeof url, "%s%s", s->url, cases[i].path);
        struct http_call c = {.method = cases[i].method,
                              .url = url,
                              .bearer = cases[i].bearer,
                              .body = str_from(cases[i].body),
                              .timeout_ms = 10000};
        strbuf_init(&answer, 0);
        enum status got = http_client_call(&c, &status, &answer, &err);
        if (got != STATUS_OK)
            print_error("case %zu: %s\n", i, err.text);
        assert_int_equal(got, STATUS_OK);
        assert_int_equal(status, cases[i].status);
        assert_string_equal(answer.ptr, cases[i].want);
        strbuf_fini(&answer);
    }
}

struct pieces {
    struct strbuf all;
    bool stop_at_once;
};

static bool on_data(void *ctx, struct str piece)
{
    struct pieces *p = ctx;
    strbuf_append_str(&p->all, piece);
    return !p->stop_at_once;
}

static void test_stream(void **state)
{
    const struct served *s = *state;
    char url[128];
    snprintf(url, sizeof url, "%s/stream", s->url);
    for (int i = 0; i < 2; i++) {
        struct pieces p = {.stop_at_once = i == 1};
        struct http_call c = {.url = url, .on_data = on_data, .ctx = &p, .timeout_ms = 10000};
        int status = 0;
        strbuf_init(&p.all, 0);
        assert_int_equal(http_client_call(&c, &status, NULL, NULL), STATUS_OK);
        assert_int_equal(status, 200);
        assert_int_equal(strncmp(p.all.ptr, "one.", 4), 0);
        if (!p.stop_at_once)
            assert_string_equal(p.all.ptr, "one.two.");
        strbuf_fini(&p.all);
    }
}

/* Makes a URL with a port that refuses connections: the port is bound, but no server listens.
 * Returns the socket. */
static int refusing_url(char *url, size_t size)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    snprintf(url, size, "http://127.0.0.1:%u/", ntohs(a.sin_port));
    return fd;
}

static void test_failures(void **state)
{
    const struct served *s = *state;
    char silent[128], missing[128], refusing[64];
    int refusing_fd = refusing_url(refusing, sizeof refusing);
    snprintf(silent, sizeof silent, "%s/silent", s->url);
    snprintf(missing, sizeof missing, "%s/", s->url);
    const struct {
        struct http_call call;
        enum status want;
        size_t limit;
    } cases[] = {
        {{.url = silent, .timeout_ms = 50}, STATUS_TIMEOUT, 0},
        {{.url = refusing}, STATUS_IO, 0},
        {{.url = "file:///etc/passwd"}, STATUS_INVALID, 0},
        {{.url = "http://"}, STATUS_INVALID, 0},
        {{.url = missing, .bearer = "a\r\nX: y"}, STATUS_INVALID, 0},
        {{.url = missing}, STATUS_LIMIT, 3}, /* the answer is longer than the buffer may grow */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf answer;
        struct error err = {0};
        int status;
        strbuf_init(&answer, cases[i].limit);
        enum status got = http_client_call(&cases[i].call, &status, &answer, &err);
        if (got != cases[i].want)
            print_error("case %zu: %s %s\n", i, status_name(got), err.text);
        assert_int_equal(got, cases[i].want);
        assert_true(strlen(err.text) > 0);
        strbuf_fini(&answer);
    }
    close(refusing_fd);
}

static void *interrupt(void *session)
{
    http_session_interrupt(session, true);
    return NULL;
}

/* The server never answers, and the time-out is longer than any test may take. */
static void test_a_call_is_interrupted(void **state)
{
    const struct served *s = *state;
    struct http_session *session = http_session_new();
    char silent[128];
    pthread_t thread;
    assert_non_null(session);
    snprintf(silent, sizeof silent, "%s/silent", s->url);
    for (int i = 0; i < 4; i++) {
        const bool ends = i % 2 == 0; /* an interrupted call does not spoil the next one */
        struct http_call c = {
            .url = ends ? silent : s->url, .timeout_ms = 3600000, .session = session};
        struct strbuf answer;
        struct error err = {0};
        int status = 0;
        strbuf_init(&answer, 0);
        if (ends)
            assert_int_equal(pthread_create(&thread, NULL, interrupt, session), 0);
        assert_int_equal(http_client_call(&c, &status, &answer, &err),
                         ends ? STATUS_CLOSED : STATUS_OK);
        assert_int_equal(status, ends ? 0 : 200);
        if (ends)
            pthread_join(thread, NULL);
        http_session_interrupt(session, false);
        strbuf_fini(&answer);
    }
    http_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_a_call_is_interrupted),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
