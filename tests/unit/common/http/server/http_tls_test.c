/* Tests the HTTP server over TLS. A real loop serves on loopback, and OpenSSL's client runs in a
 * thread. /stream writes N chunks, /open sends half an answer, /hold sends none, and other paths
 * answer with the path and the body's length. A complete answer must end with close_notify, and
 * a failed or slow handshake must cost only its own connection. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"
#include "common/tls/server.h"
#include "common/tls/session.h"
#include "tests/unit/common/tls/tls_files.h"

enum { CHUNK = 8192, PIPELINED = 3000 };

static char file[] = "/tmp/coxhttptls-XXXXXX";

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *stop;
    SSL_CTX *client;
    void (*script)(struct fixture *f);
    struct strbuf got;
    int end; /* result of SSL_get_error after the last read */
    _Atomic int n_aborted;
    _Atomic int n_requests;
    int n_chunks, n_drains;
};

static void fill(struct fixture *f, struct http_request *r)
{
    static char chunk[CHUNK];
    memset(chunk, 'x', sizeof chunk);
    for (; f->n_chunks > 0 && http_stream_room(r) >= sizeof chunk; f->n_chunks--)
        http_stream_write(r, (struct str){chunk, sizeof chunk});
    if (f->n_chunks == 0)
        http_stream_end(r);
}

static void on_request(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    char text[64];
    f->n_requests++;
    if (str_eq_c(http_path(r), "/stream")) {
        http_stream_begin(r, 200, "text/event-stream", NULL, 0);
        fill(f, r);
    } else if (str_eq_c(http_path(r), "/open")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0);
        http_stream_write(r, STR("half!"));
    } else if (!str_eq_c(http_path(r), "/hold")) {
        int n =
            snprintf(text, sizeof text, STR_FMT " %zu;", STR_ARG(http_path(r)), http_body(r).len);
        http_respond(r, 200, "text/plain", (struct str){text, (size_t)n}, NULL, 0);
    }
}

static void on_drain(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    f->n_drains++;
    fill(f, r);
}

static void on_abort(void *ctx, struct http_request *r)
{
    ((struct fixture *)ctx)->n_aborted++;
}

static void on_stop(void *ctx)
{
    struct fixture *f = ctx;
    http_server_close(f->server);
    loop_stop(f->loop);
}

static void *client_main(void *ctx)
{
    struct fixture *f = ctx;
    f->script(f);
    loop_wake(f->stop);
    return NULL;
}

static void run(struct fixture *f, void (*script)(struct fixture *f), struct http_limits limits)
{
    struct error err = {0};
    pthread_t thread;
    struct tls_server *tls;
    const struct tls_options to = {.certfile = file};
    assert_int_equal(tls_server_new(&to, &tls, &err), STATUS_OK);
    const struct http_options o = {.host = "127.0.0.1", .limits = limits, .tls = tls};
    const struct http_handlers h = {
        .ctx = f, .on_request = on_request, .on_drain = on_drain, .on_abort = on_abort};
    f->script = script;
    f->client = SSL_CTX_new(TLS_client_method());
    strbuf_init(&f->got, 0);
    assert_int_equal(loop_new(&f->loop, &err), STATUS_OK);
    assert_int_equal(http_server_start(f->loop, &o, &h, &f->server, &err), STATUS_OK);
    f->stop = loop_wakeup_new(f->loop, on_stop, f);
    assert_int_equal(pthread_create(&thread, NULL, client_main, f), 0);
    loop_run(f->loop);
    pthread_join(thread, NULL);
    loop_free(f->loop);
    tls_server_free(tls);
    SSL_CTX_free(f->client);
}

static void finish(struct fixture *f)
{
    strbuf_fini(&f->got);
    *f = (struct fixture){0};
}

static int dial(struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(f->server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 64 << 10;
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        abort();
    return fd;
}

static SSL *shake(struct fixture *f, int fd)
{
    SSL *ssl = SSL_new(f->client);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1)
        abort();
    return ssl;
}

static void hang_up(SSL *ssl, int fd)
{
    SSL_free(ssl);
    close(fd);
}

/* Reads until the server ends the connection. */
static void read_all(struct fixture *f, SSL *ssl, unsigned pause_us)
{
    static char buf[64 << 10];
    int n;
    while ((n = SSL_read(ssl, buf, sizeof buf)) > 0) {
        strbuf_append(&f->got, buf, (size_t)n);
        if (pause_us)
            usleep(pause_us);
    }
    f->end = SSL_get_error(ssl, n);
    ERR_clear_error();
}

static void send_all(SSL *ssl, struct str bytes)
{
    size_t n;
    if (SSL_write_ex(ssl, bytes.ptr, bytes.len, &n) != 1 || n != bytes.len)
        abort();
}

static uint32_t count(struct str text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text.ptr; (at = strstr(at, word)); at++)
        n++;
    return n;
}

/* ---- answers ---- */

static void send_many(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "POST /first HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n");
    memset(strbuf_extend(&b, 300000), 'b', 300000);
    /* the bytes are more than may wait after an unanswered request */
    for (int i = 0; i < PIPELINED; i++)
        strbuf_printf(&b, "GET /%d HTTP/1.1\r\nHost: t\r\nX-Fill: %0100d\r\n\r\n", i, 0);
    strbuf_append_c(&b, "GET /last HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    send_all(ssl, strbuf_str(&b));
    read_all(f, ssl, 0);
    strbuf_fini(&b);
    hang_up(ssl, fd);
}

static void many_requests_of_one_connection(void **state)
{
    struct fixture f = {0};
    run(&f, send_many, (struct http_limits){0});
    assert_int_equal(f.n_requests, PIPELINED + 2);
    assert_int_equal(count(strbuf_str(&f.got), "HTTP/1.1 200"), PIPELINED + 2);
    assert_non_null(strstr(f.got.ptr, "/first 300000;"));
    assert_non_null(strstr(f.got.ptr, "/last 0;"));
    assert_int_equal(f.end, SSL_ERROR_ZERO_RETURN); /* the server sent close_notify */
    assert_int_equal(f.n_aborted, 0);
    finish(&f);
}

static void read_slowly(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    send_all(ssl, STR("GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
    read_all(f, ssl, 50);
    hang_up(ssl, fd);
}

static void a_stream_waits_for_a_slow_reader(void **state)
{
    struct fixture f = {.n_chunks = 2000}; /* the answer is 16 MB, more than the sockets hold */
    run(&f, read_slowly, (struct http_limits){.stream_high_water_bytes = 64 << 10});
    assert_true(f.got.len > (size_t)2000 * CHUNK);
    assert_memory_equal(f.got.ptr + f.got.len - 5, "0\r\n\r\n", 5);
    assert_true(f.n_drains > 0);
    assert_int_equal(f.end, SSL_ERROR_ZERO_RETURN);
    assert_int_equal(f.n_aborted, 0);
    finish(&f);
}

static void read_too_late(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    send_all(ssl, STR("GET /stream HTTP/1.0\r\n\r\n"));
    while (f->n_aborted == 0)
        usleep(1000);
    read_all(f, ssl, 0);
    hang_up(ssl, fd);
}

/* An answer without a length ends with the connection. Only close_notify shows that the answer
 * is complete. */
static void what_breaks_off_is_not_closed_properly(void **state)
{
    struct fixture f = {.n_chunks = 4000};
    run(&f, read_too_late, (struct http_limits){.write_stall_ms = 100});
    assert_int_equal(f.n_aborted, 1);
    assert_true(f.end == SSL_ERROR_SSL || f.end == SSL_ERROR_SYSCALL);
    finish(&f);
}

static void outlive_the_server(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    char byte;
    send_all(ssl, STR("GET /open HTTP/1.0\r\n\r\n"));
    while (SSL_read(ssl, &byte, 1) == 1 && byte != '!')
        ;
    loop_wake(f->stop);
    read_all(f, ssl, 0);
    hang_up(ssl, fd);
}

static void a_server_that_ends_does_not_close_properly(void **state)
{
    struct fixture f = {0};
    run(&f, outlive_the_server, (struct http_limits){0});
    assert_int_equal(f.n_aborted, 1);
    assert_true(f.end == SSL_ERROR_SSL || f.end == SSL_ERROR_SYSCALL);
    finish(&f);
}

static void say_goodbye(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    send_all(ssl, STR("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
    SSL_shutdown(ssl);
    read_all(f, ssl, 0);
    hang_up(ssl, fd);
}

static void close_notify_is_an_end(void **state)
{
    struct fixture f = {0};
    run(&f, say_goodbye, (struct http_limits){0});
    assert_int_equal(f.n_requests, 1);
    assert_int_equal(f.n_aborted, 1);
    finish(&f);
}

/* The client sends a request and closes its sending side at once. The client must still get the
 * answer. */
static void ask_and_close(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    BIO *held = BIO_new(BIO_s_mem()), *socket_bio = SSL_get_wbio(ssl);
    char *bytes;
    BIO_up_ref(socket_bio);
    SSL_set0_wbio(ssl, held);
    send_all(ssl, STR("GET /asked HTTP/1.1\r\nHost: t\r\n\r\n"));
    SSL_shutdown(ssl);
    long n = BIO_get_mem_data(held, &bytes);
    if (send(fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        abort();
    shutdown(fd, SHUT_WR);
    read_all(f, ssl, 0);
    BIO_free(socket_bio);
    hang_up(ssl, fd);
}

static void who_has_said_all_reads_the_answer(void **state)
{
    struct fixture f = {0};
    run(&f, ask_and_close, (struct http_limits){0});
    assert_non_null(strstr(strbuf_str(&f.got).ptr, "/asked 0;"));
    assert_int_equal(f.end, SSL_ERROR_ZERO_RETURN);
    assert_int_equal(f.n_aborted, 0);
    finish(&f);
}

/* ---- before and during the handshake ---- */

static struct str raw_bytes;

static void send_raw(struct fixture *f)
{
    char buf[1024];
    ssize_t n;
    int fd = dial(f);
    for (size_t i = 0; i < raw_bytes.len; i++)
        if (send(fd, raw_bytes.ptr + i, 1, MSG_NOSIGNAL) != 1)
            break;
    while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
        strbuf_append(&f->got, buf, (size_t)n);
    f->end = (int)n;
    close(fd);
}

static void what_is_no_handshake(void **state)
{
    static const struct {
        struct str bytes;
        const char *answer;
        size_t n_answer;
    } cases[] = {
        {STR("GET /x HTTP/1.1\r\n\r\n"), "HTTP/1.1 400", 12},
        /* the server answers with the start of a TLS alert */
        {STR("\x16\x03\x01\x00\x04\x01\x00\x00\x00"), "\x15\x03", 2},
        {STR("\x16\x03\x01\x40\x00\x01\x00\xff\xff"), "", 0},
        /* the client sends nothing more */
        {STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "", 0},
        {STR(""), "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = {0};
        raw_bytes = cases[i].bytes;
        run(&f, send_raw,
            (struct http_limits){.header_timeout_ms = cases[i].n_answer ? 20000 : 200});
        if (f.got.len < cases[i].n_answer || (cases[i].n_answer == 0 && f.got.len > 0) ||
            memcmp(strbuf_str(&f.got).ptr, cases[i].answer, cases[i].n_answer) != 0)
            fail_msg("case %zu: %zu bytes, %s", i, f.got.len, strbuf_str(&f.got).ptr);
        assert_int_equal(f.n_requests, 0);
        /* the server ended the connection before the client's own time limit */
        assert_int_equal(f.end, 0);
        finish(&f);
    }
}

/* Sends one byte at a time until the server stops reading. */
static void trickle(struct fixture *f)
{
    int fd = dial(f);
    char byte = '\0', head[] = "\x16\x03\x01\x10\x00\x01\x00\x0f\xfc\x03\x03";
    for (size_t i = 0; i < 5000; i++) {
        /* after these headers the client sends zeros */
        byte = head[i < sizeof head - 1 ? i : sizeof head - 1];
        /* the send fails after a reset, because the server did not read the last bytes */
        f->end = send(fd, &byte, 1, MSG_NOSIGNAL) != 1;
        usleep(5000);
        f->end = f->end || recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
        if (f->end)
            break;
    }
    close(fd);
}

static void a_slow_handshake_ends_by_its_deadline(void **state)
{
    struct fixture f = {0};
    run(&f, trickle, (struct http_limits){.header_timeout_ms = 200});
    assert_int_equal(f.end, 1);
    finish(&f);
}

/* Requests new keys, which the server answers at any time. Returns false when the server has
 * closed the connection. */
static bool ask_for_keys(SSL *ssl)
{
    return SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1;
}

static void change_keys_for_ever(struct fixture *f)
{
    int fd = dial(f);
    SSL *ssl = shake(f, fd);
    char byte;
    send_all(ssl, STR("GET /x HTTP/1.1\r\nHo"));
    for (int i = 0; i < 4000 && f->end == 0; i++) {
        usleep(5000);
        if (!ask_for_keys(ssl) || recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
            f->end = 1;
    }
    if (f->end == 0)
        f->end = 2;
    ERR_clear_error();
    hang_up(ssl, fd);
}

/* The client starts a second handshake while the answer is made. The server refuses it with an
 * alert. Then the client waits for longer than a write may stall. */
static void shake_again(struct fixture *f)
{
    char bytes[256];
    ssize_t n;
    int fd = dial(f);
    struct timeval limit = {.tv_sec = 1};
    SSL_CTX_set_max_proto_version(f->client, TLS1_2_VERSION);
    SSL *ssl = shake(f, fd);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    send_all(ssl, STR("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
    while (f->n_requests == 0)
        usleep(1000);
    /* OpenSSL's client would end the connection at the alert */
    SSL_set0_rbio(ssl, BIO_new(BIO_s_mem()));
    if (SSL_renegotiate(ssl) != 1 || SSL_do_handshake(ssl) == 1)
        abort();
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        ;
    f->end = (int)n;
    ERR_clear_error();
    hang_up(ssl, fd);
}

static void what_TLS_says_by_itself_moves_no_deadline(void **state)
{
    struct fixture f = {0}, g = {0};
    run(&f, change_keys_for_ever, (struct http_limits){.header_timeout_ms = 300});
    assert_int_equal(f.end, 1);
    finish(&f);
    run(&g, shake_again, (struct http_limits){.write_stall_ms = 100});
    assert_int_equal(g.n_requests, 1);
    assert_int_equal(g.end, -1); /* the client was still waiting at the end */
    finish(&g);
}

static void come_in_numbers(struct fixture *f)
{
    int fds[3];
    SSL *ssl[2];
    char byte;
    for (int i = 0; i < 2; i++) {
        fds[i] = dial(f);
        ssl[i] = shake(f, fds[i]);
    }
    for (int i = 0; i < 2; i++)
        send_all(ssl[i], STR("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
    for (int i = 0; i < 500 && f->n_requests < 2; i++)
        usleep(10000);
    fds[2] = dial(f);
    f->end = (int)recv(fds[2], &byte, 1, 0); /* no handshake takes place */
    close(fds[2]);
    for (int i = 0; i < 2; i++)
        hang_up(ssl[i], fds[i]);
}

static void connections_over_the_limit_are_closed(void **state)
{
    struct fixture f = {.end = -1};
    run(&f, come_in_numbers, (struct http_limits){.max_connections = 2});
    assert_int_equal(f.end, 0);
    finish(&f);
}

static int make_file(void **state)
{
    struct tls_identity i = tls_identity_make("server", NULL);
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    tls_identity_write(file, i.cert, i.key, NULL);
    tls_identity_fini(&i);
    return 0;
}

static int remove_file(void **state)
{
    return unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_requests_of_one_connection),
        cmocka_unit_test(a_stream_waits_for_a_slow_reader),
        cmocka_unit_test(what_breaks_off_is_not_closed_properly),
        cmocka_unit_test(a_server_that_ends_does_not_close_properly),
        cmocka_unit_test(close_notify_is_an_end),
        cmocka_unit_test(who_has_said_all_reads_the_answer),
        cmocka_unit_test(what_is_no_handshake),
        cmocka_unit_test(a_slow_handshake_ends_by_its_deadline),
        cmocka_unit_test(what_TLS_says_by_itself_moves_no_deadline),
        cmocka_unit_test(connections_over_the_limit_are_closed),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
