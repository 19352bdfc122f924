/* Tests the relay. A front server passes requests to a back server. The two run on one thread's
 * loop, and a blocking client reads slowly. A slow reader must stop the back server's stream, so
 * that memory stays bounded, and an answer that breaks off must never look complete. */
#include "common/http/handlers/relay.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/http/client/client.h"

enum { PIECE = 64 << 10, STREAM_BYTES = 48 << 20 /* a stream is more than socket buffers hold */ };

static struct served {
    struct loop *loop;
    struct http_server *front, *back;
    struct loop_wakeup *stop;
    pthread_t thread;
    size_t written;
    uint16_t port; /* port of the back server */
} s;

/* ---- the back server ---- */

static void write_on(void *ctx, struct http_request *r)
{
    static char piece[PIECE];
    if (str_eq_c(http_path(r), "/broken")) {
        http_drop(r); /* the connection is dropped after the start of the answer was sent */
        return;
    }
    while (s.written < STREAM_BYTES && http_stream_room(r) > 0) {
        memset(piece, 'a' + (int)(s.written / PIECE % 26), sizeof piece);
        http_stream_write(r, (struct str){piece, sizeof piece});
        s.written += sizeof piece;
    }
    if (s.written == STREAM_BYTES) {
        s.written++;
        http_stream_end(r);
    }
}

static void behind(void *ctx, struct http_request *r)
{
    struct strbuf b;
    if (str_eq_c(http_path(r), "/stream")) {
        s.written = 0;
        http_stream_begin(r, 200, "application/jsonlines", NULL, 0);
        write_on(NULL, r);
    } else if (str_eq_c(http_path(r), "/broken")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0);
        http_stream_write(r, STR("half"));
        while (http_stream_room(r) > 0) /* on_drain is called when these bytes are sent */
            http_stream_write(r, STR("and half"));
    } else if (str_eq_c(http_path(r), "/nothing")) {
        http_drop(r);
    } else {
        strbuf_init(&b, 0);
        strbuf_printf(&b, STR_FMT " " STR_FMT "?" STR_FMT " " STR_FMT " " STR_FMT " " STR_FMT,
                      STR_ARG(http_method(r)), STR_ARG(http_path(r)), STR_ARG(http_query(r)),
                      STR_ARG(http_header(r, "Content-Type")),
                      STR_ARG(http_header(r, "Authorization")), STR_ARG(http_body(r)));
        http_respond(r, 404, "text/plain", strbuf_str(&b), NULL, 0);
        strbuf_fini(&b);
    }
}

static void no_abort(void *ctx, struct http_request *r)
{
}

/* ---- the front server ---- */

static void in_front(void *ctx, struct http_request *r)
{
    char path[32];
    snprintf(path, sizeof path, STR_FMT, STR_ARG(http_path(r)));
    const struct http_relay_options o = {
        .loop = s.loop, .request = r, .method = "POST", .path = path, .port = s.port};
    http_relay_start(&o);
}

static void on_drain(void *ctx, struct http_request *r)
{
    http_relay_on_drain(http_get_user(r));
}

static void on_abort(void *ctx, struct http_request *r)
{
    http_relay_on_abort(http_get_user(r));
}

static void on_stop(void *ctx)
{
    loop_stop(s.loop);
}

static void *run(void *ctx)
{
    loop_run(s.loop);
    return NULL;
}

static int start(void **state)
{
    const struct http_options o = {
        .host = "127.0.0.1", .server_name = "test", .limits = {.stream_high_water_bytes = PIECE}};
    const struct http_handlers b = {
        .on_request = behind, .on_drain = write_on, .on_abort = no_abort};
    const struct http_handlers f = {
        .on_request = in_front, .on_drain = on_drain, .on_abort = on_abort};
    assert_int_equal(loop_new(&s.loop, NULL), STATUS_OK);
    assert_int_equal(http_server_start(s.loop, &o, &b, &s.back, NULL), STATUS_OK);
    assert_int_equal(http_server_start(s.loop, &o, &f, &s.front, NULL), STATUS_OK);
    s.port = http_server_port(s.back);
    s.stop = loop_wakeup_new(s.loop, on_stop, NULL);
    return pthread_create(&s.thread, NULL, run, NULL);
}

static int stop(void **state)
{
    loop_wake(s.stop);
    pthread_join(s.thread, NULL);
    http_server_close(s.front);
    http_server_close(s.back);
    loop_wakeup_free(s.stop);
    loop_free(s.loop);
    return 0;
}

static enum status call(const char *path, struct http_call c, int *code, struct strbuf *out)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", http_server_port(s.front), path);
    c.url = url;
    c.timeout_ms = 60000;
    return http_client_call(&c, code, out, NULL);
}

static void test_whole(void **state)
{
    struct strbuf b;
    int code = 0;
    strbuf_init(&b, 0);
    assert_int_equal(
        call("/x?a=1", (struct http_call){.bearer = "k", .body = STR("{}")}, &code, &b), STATUS_OK);
    assert_int_equal(code, 404);
    assert_string_equal(strbuf_str(&b).ptr, "POST /x?a=1 application/json Bearer k {}");
    strbuf_fini(&b);
}

struct reader {
    size_t n;
    bool wrong;
};

/* Sleeps at the first piece, so that all buffers between server and client fill up. */
static bool read_slowly(void *ctx, struct str piece)
{
    struct reader *r = ctx;
    if (r->n == 0)
        usleep(300 * 1000);
    for (size_t i = 0; i < piece.len; i++, r->n++)
        r->wrong = r->wrong || piece.ptr[i] != (char)('a' + (int)(r->n / PIECE % 26));
    return true;
}

/* The test sends 48 MiB through two queues of 64 KiB. When a queue is full, the sending server
 * stops reading and continues later. */
static void test_slow_reader(void **state)
{
    struct reader r = {0};
    struct strbuf b;
    int code = 0;
    strbuf_init(&b, 0);
    const struct http_call c = {.body = STR("{}"), .on_data = read_slowly, .ctx = &r};
    assert_int_equal(call("/stream", c, &code, &b), STATUS_OK);
    assert_int_equal(code, 200);
    assert_int_equal(r.n, STREAM_BYTES);
    assert_false(r.wrong);
    strbuf_fini(&b);
}

/* An answer that breaks off must not look complete. */
static void test_broken(void **state)
{
    struct strbuf b;
    int code = 0;
    strbuf_init(&b, 0);
    assert_int_not_equal(call("/broken", (struct http_call){.body = STR("{}")}, &code, &b),
                         STATUS_OK);
    strbuf_reset(&b);
    assert_int_equal(call("/nothing", (struct http_call){.body = STR("{}")}, &code, &b), STATUS_OK);
    assert_int_equal(code, 502);
    strbuf_reset(&b);
    s.port = 1; /* no server listens on this port */
    assert_int_equal(call("/x", (struct http_call){.body = STR("{}")}, &code, &b), STATUS_OK);
    assert_int_equal(code, 503);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, start, stop),
        cmocka_unit_test_setup_teardown(test_slow_reader, start, stop),
        cmocka_unit_test_setup_teardown(test_broken, start, stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
