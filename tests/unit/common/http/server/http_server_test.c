/* Tests the HTTP server's requests, answers and deadlines, byte by byte. A client thread sends
 * fixed bytes to the real server of http_fixture.h and reads until the end. The tests compare
 * the answers. A malformed request must get an error and a closed connection, and every deadline
 * must end its connection. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "common/http/message/parser.h"
#include "tests/unit/common/http/server/http_fixture.h"

#define H " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"

static void raw_requests_get_the_right_answer(void **state)
{
    static const struct {
        const char *name, *send, *status, *body;
    } cases[] = {
        {"get", "GET /a?b=c" H "X-A: v\r\n\r\n", "HTTP/1.1 200 OK", "GET /a?b=c [v] "},
        {"post", "POST /e" H "Content-Length: 3\r\n\r\nabc", "HTTP/1.1 200", "POST /e? [] abc"},
        {"chunked",
         "POST /e" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
         "HTTP/1.1 200", "[] abcde"},
        {"a coding we do not undo",
         "POST /e" H "Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
         "HTTP/1.1 501", "chunked"},
        {"absolute form", "GET http://t:80/a?b=c" H "\r\n", "HTTP/1.1 200", "GET /a?b=c"},
        {"absolute form, no path", "GET http://t:80" H "\r\n", "HTTP/1.1 200", "GET /? "},
        {"http/1.0", "GET /a HTTP/1.0\r\n\r\n", "HTTP/1.1 200", "GET /a? [] "},
        {"head", "HEAD /a" H "\r\n", "HTTP/1.1 200", NULL},
        {"upgrade is ignored", "GET /a" H "Upgrade: h2c\r\n\r\n", "HTTP/1.1 200", "GET /a"},
        {"pipelined", "GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2" H "\r\n", "HTTP/1.1 200",
         "GET /2"},
        {"garbage", "\x01\x02\r\n\r\n", "HTTP/1.1 400", "\"error\""},
        {"no host", "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 400", "Host"},
        {"two hosts", "GET /a" H "Host: u\r\n\r\n", "HTTP/1.1 400", "Host"},
        {"length and chunked",
         "POST /e" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         "HTTP/1.1 400", "\"error\""},
        {"two lengths", "POST /e" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
         "HTTP/1.1 400", "\"error\""},
        {"bad length", "POST /e" H "Content-Length: -3\r\n\r\n", "HTTP/1.1 400", "\"error\""},
        {"http/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 ", "\"error\""},
        {"connect", "CONNECT a:1" H "\r\n", "HTTP/1.1 405", "CONNECT"},
        {"body too large", "POST /e" H "Content-Length: 999999\r\n\r\n", "HTTP/1.1 413",
         "\"type\":\"BadRequestError\",\"param\":null,\"code\":413"},
        {"chunk too large", "POST /e" H "Transfer-Encoding: chunked\r\n\r\nfffff\r\n",
         "HTTP/1.1 413", "\"code\":413"},
        {"expect", "POST /e" H "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na", "HTTP/1.1 ",
         "POST /e? [] a"},
        {"folded", "GET /a" H "X-A: a\r\n b\r\n\r\n", "HTTP/1.1 400", "spans several lines"},
        {"folded, a tab", "GET /a" H "X-A: a\r\n\tb\r\n\r\n", "HTTP/1.1 400", "several lines"},
        {"a coding that is folded", "POST /e" H "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
         "HTTP/1.1 400", "spans several lines"},
        {"a body like a fold", "POST /e" H "Content-Length: 4\r\n\r\n\n \n\t", "HTTP/1.1 200",
         "[] \n \n\t"},
        {"blanks behind a value", "GET /a" H "X-A: v \t\r\n\r\n", "HTTP/1.1 200", "[v] "},
        {"blank before the colon", "POST /e" H "Content-Length : 3\r\n\r\nabc", "HTTP/1.1 400",
         "Malformed"},
        {"blank in a name", "GET /a" H "X A: v\r\n\r\n", "HTTP/1.1 400", "Malformed"},
        {"no name", "GET /a" H ": v\r\n\r\n", "HTTP/1.1 400", "no name"},
        {"bare LF", "GET /a HTTP/1.1\nHost: t\n\n", "HTTP/1.1 400", "Malformed"},
        {"bare CR", "GET /a" H "X-A: a\rb\r\n\r\n", "HTTP/1.1 400", "Malformed"},
        {"control byte", "GET /a" H "X-A: a\x01\r\n\r\n", "HTTP/1.1 400", "Malformed"},
        {"a list of lengths", "POST /e" H "Content-Length: 3, 3\r\n\r\nabc", "HTTP/1.1 400",
         "Malformed"},
        {"the same length twice", "POST /e" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
         "HTTP/1.1 400", "Malformed"},
        {"chunk without its end", "POST /e" H "Transfer-Encoding: chunked\r\n\r\n1\r\nabc0\r\n\r\n",
         "HTTP/1.1 400", "Malformed"},
        {"chunks in http/1.0",
         "POST /e HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: "
         "chunked\r\n\r\n1\r\na\r\n0"
         "\r\n\r\n",
         "HTTP/1.1 200", "Connection: close"},
        {"http/0.9", "GET /a\r\n\r\n", "HTTP/1.1 505", "HTTP/1.1"},
        {"other expectation", "POST /e" H "Expect: tea\r\nContent-Length: 1\r\n\r\na",
         "HTTP/1.1 417", "\"error\""},
    };
    const struct http_limits limits = {.max_body_bytes = 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = mem_zalloc(sizeof *f);
        f->script = exchange;
        f->send = cases[i].send;
        run(f, &limits);
        if (strncmp(f->answer, cases[i].status, strlen(cases[i].status)) != 0 ||
            (cases[i].body && !strstr(f->answer, cases[i].body)))
            fail_msg("%s: got:\n%s", cases[i].name, f->answer);
        if (!cases[i].body)
            assert_string_equal(strstr(f->answer, "\r\n\r\n"), "\r\n\r\n");
        mem_free(f);
    }
}

/* Each body is sent on a connection that stays open, and a plain request follows it. */
static void compressed_bodies_are_decoded(void **state)
{
    static const char deflated[] =
        "\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\x48\xca\x4f\xa9\x04\x00\x15\x4b\x03\xe3";
    static const char bomb[] =
        "\x78\xda\xed\xc1\x31\x01\x00\x00\x00\xc2\xa0\xac\xeb\x5f\xc2\x0c\xfe\x40"
        "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xaf\x01\xcc\xee"
        "\x16\x99"; /* the bytes decode to 200000 bytes */
    static const struct {
        const char *coding, *body;
        size_t n;
        const char *status, *want;
    } cases[] = {
        {"deflate", deflated, sizeof deflated - 1, "HTTP/1.1 200", "[v] hello body"},
        {"identity, Deflate", deflated, sizeof deflated - 1, "HTTP/1.1 200", "[v] hello body"},
        {"identity", "plain", 5, "HTTP/1.1 200", "[v] plain"},
        {"gzip", "", 0, "HTTP/1.1 200", "[v] "},
        {"deflate", deflated, sizeof deflated - 2, "HTTP/1.1 400", "Content-Encoding"},
        {"gzip", deflated, sizeof deflated - 1, "HTTP/1.1 400", "corrupt"},
        {"deflate", bomb, sizeof bomb - 1, "HTTP/1.1 413", "too large after it is decoded"},
        {"br", "x", 1, "HTTP/1.1 415", "Content-Encoding"},
        {"gzip, br", "x", 1, "HTTP/1.1 415", "Accept-Encoding: gzip, deflate, zstd\r\n"},
    };
    const struct http_limits limits = {.max_body_bytes = 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = mem_zalloc(sizeof *f);
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_printf(&b,
                      "POST /e HTTP/1.1\r\nHost: t\r\nX-A: v\r\nContent-Encoding: %s\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      cases[i].coding, cases[i].n);
        strbuf_append(&b, cases[i].body, cases[i].n);
        strbuf_append_c(&b, "GET /next" H "\r\n");
        f->script = exchange;
        f->send = b.ptr;
        f->n_send = b.len;
        run(f, &limits);
        bool ok = strncmp(cases[i].status, "HTTP/1.1 200", 12) == 0;
        if (strncmp(f->answer, cases[i].status, 12) != 0 || !strstr(f->answer, cases[i].want) ||
            ok != (strstr(f->answer, "GET /next") != NULL))
            fail_msg("%s of %zu: got:\n%s", cases[i].coding, cases[i].n, f->answer);
        strbuf_fini(&b);
        mem_free(f);
    }
}

static pthread_t loop_thread;

static size_t find_end(struct str body)
{
    const char *end = memchr(body.ptr, '.', body.len);
    return !pthread_equal(pthread_self(), loop_thread) && end ? (size_t)(end - body.ptr) : 1;
}

static void tell_looked(void *ctx, struct http_request *r)
{
    char text[64];
    snprintf(text, sizeof text, "looked %zu of %zu", http_looked(r), http_body(r).len);
    http_respond(r, 200, "text/plain", str_from(text), NULL, 0);
}

/* A thread of the pool looks at a large body. A small body of the same connection gets no result of
 * the large one. */
static void a_thread_looks_at_a_large_body(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    struct strbuf b;
    loop_thread = pthread_self();
    strbuf_init(&b, 0);
    strbuf_printf(&b, "POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n",
                  HTTP_SMALL_BODY_BYTES + 1);
    for (int i = 0; i < HTTP_SMALL_BODY_BYTES; i++)
        strbuf_append_c(&b, "x");
    strbuf_append_c(&b, ".POST /e" H "Content-Length: 2\r\n\r\nx.");
    f->script = exchange;
    f->handler = tell_looked;
    f->look = find_end;
    f->send = b.ptr;
    run(f, NULL);
    assert_non_null(strstr(f->answer, "looked 65536 of 65537"));
    assert_non_null(strstr(f->answer, "looked 0 of 2"));
    strbuf_fini(&b);
    mem_free(f);
}

/* The server does not decode a body that the handler will refuse. */
static void a_handler_may_want_no_decoding(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = exchange;
    f->send =
        "POST /as_it_came" H "X-A: v\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\nno gzip";
    run(f, NULL);
    assert_non_null(strstr(f->answer, "POST /as_it_came? [v] no gzip"));
    mem_free(f);
}

/* The handler answers the request of an unauthenticated client at once, whatever body the
 * request announces. The server neither waits for the body nor sends 100 Continue. */
static void a_body_that_nobody_wants_is_not_read(void **state)
{
#define STRANGER "POST /stranger HTTP/1.1\r\nHost: t\r\nX-A: v\r\n"
    static const struct {
        const char *send, *want;
        bool ends;
    } cases[] = {
        {STRANGER "Content-Length: 3\r\n\r\nabc", "[v] ", true},
        /* the rest of the body never arrives */
        {STRANGER "Content-Length: 1000\r\n\r\nabc", "[v] ", true},
        {STRANGER "Content-Length: 0\r\n\r\n", "[v] ", false},
        {STRANGER "\r\n", "[v] ", false},
        /* other callers get a 413 for this body */
        {STRANGER "Content-Length: 1001\r\n\r\n", "[v] ", true},
        {STRANGER "Content-Length: 99999999\r\n\r\nabc", "[v] ", true},
        {STRANGER "Transfer-Encoding: chunked\r\n\r\nfffff\r\nabc", "[v] ", true},
        {STRANGER "Transfer-Encoding: chunked\r\n\r\n", "[v] ", true},
        {STRANGER "Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n", "[v] ", true},
        {STRANGER "Content-Encoding: br\r\nContent-Length: 5000\r\n\r\nabc", "[v] ", true},
        {"POST /few" H "Content-Length: 10\r\n\r\n0123456789", "0123456789", true},
        {"POST /few" H "Content-Length: 11\r\n\r\n", "HTTP/1.1 413", true},
        {"POST /few" H "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n",
         "HTTP/1.1 413", true},
    };
    const struct http_limits limits = {.max_body_bytes = 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = mem_zalloc(sizeof *f);
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_append_c(&b, cases[i].send);
        strbuf_append_c(&b, cases[i].ends ? "" : "GET /next" H "\r\n");
        f->script = exchange;
        f->send = strbuf_str(&b).ptr;
        run(f, &limits);
        const char *stranger = strstr(cases[i].send, "/stranger");
        if (!strstr(f->answer, cases[i].want) || strstr(f->answer, "100 Continue") ||
            (stranger && strncmp(f->answer, "HTTP/1.1 200", 12) != 0) ||
            cases[i].ends == (strstr(f->answer, "GET /next") != NULL) ||
            (cases[i].ends && !strstr(f->answer, "Connection: close")))
            fail_msg("%s: got:\n%s", cases[i].send, f->answer);
        strbuf_fini(&b);
        mem_free(f);
    }
}

/* The client may continue to send for a while and can still read the answer, because the
 * connection is not reset. */
static void stranger_that_sends_on(struct fixture *f)
{
    static char piece[1 << 16];
    int fd = dial(f);
    bool sent = send(fd, f->send, strlen(f->send), MSG_NOSIGNAL) > 0;
    for (int i = 0; i < 64 && sent; i++)
        sent = send(fd, piece, sizeof piece, MSG_NOSIGNAL) == sizeof piece;
    f->n_drains = sent;
    for (ssize_t got = 1; got > 0 && f->n_answer < sizeof f->answer - 1; f->n_answer += (size_t)got)
        got = recv(fd, f->answer + f->n_answer, sizeof f->answer - 1 - f->n_answer, 0);
    close(fd);
}

static void the_sender_of_an_unwanted_body_reads_the_answer(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = stranger_that_sends_on;
    f->send = STRANGER "Content-Length: 4194304\r\n\r\n";
    run(f, NULL);
    assert_true(f->n_drains);
    assert_memory_equal(f->answer, "HTTP/1.1 200", 12);
    assert_non_null(strstr(f->answer, "POST /stranger"));
    mem_free(f);
}

static void headers_are_bounded(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "GET /a" H);
    for (int i = 0; i < 200; i++)
        strbuf_printf(&b, "X-%d: y\r\n", i);
    strbuf_append_c(&b, "\r\n");
    f->script = exchange;
    f->send = b.ptr;
    run(f, NULL);
    assert_memory_equal(f->answer, "HTTP/1.1 431", 12);
    strbuf_reset(&b);
    strbuf_append_c(&b, "GET /a" H); /* has two fields */
    for (uint32_t i = 3; i < HTTP_MAX_FIELDS; i++)
        strbuf_printf(&b, "X-%u: y\r\n", i);
    strbuf_append_c(&b, "X-A: last\r\n\r\n");
    f->send = b.ptr;
    run(f, NULL);
    assert_memory_equal(f->answer, "HTTP/1.1 200", 12);
    assert_non_null(strstr(f->answer, "[last]"));
    strbuf_reset(&b);
    strbuf_append_c(&b, "GET /a" H "X: ");
    for (int i = 0; i < 5000; i++)
        strbuf_append_c(&b, "0123456789");
    strbuf_append_c(&b, "\r\n\r\n");
    f->send = b.ptr;
    run(f, NULL);
    assert_memory_equal(f->answer, "HTTP/1.1 431", 12);
    /* the length is checked for any path, because the path is not looked up */
    for (int too_long = 0; too_long < 2; too_long++) {
        strbuf_reset(&b);
        strbuf_append_c(&b, "GET /");
        for (int i = 1; i < (int)HTTP_MAX_URL + too_long; i++)
            strbuf_append_c(&b, "0");
        strbuf_append_c(&b, H "Connection: close\r\n\r\n");
        f->send = b.ptr;
        run(f, NULL);
        assert_memory_equal(f->answer, too_long ? "HTTP/1.1 414" : "HTTP/1.1 200", 12);
    }
    strbuf_fini(&b);
    mem_free(f);
}

static void slow_requests_end_by_their_deadlines(void **state)
{
    static const struct {
        const char *send, *status;
    } cases[] = {
        {"GET /a HTTP/1.1\r\nHo", "HTTP/1.1 408"},
        {"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab", "HTTP/1.1 408"},
        {"", ""}, /* a silent connection is closed without an answer */
    };
    const struct http_limits limits = {.header_timeout_ms = 500, .body_timeout_ms = 500};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = mem_zalloc(sizeof *f);
        f->script = exchange;
        f->send = cases[i].send;
        run(f, &limits);
        assert_memory_equal(f->answer, cases[i].status, strlen(cases[i].status));
        mem_free(f);
    }
}

static void leave_early(struct fixture *f)
{
    int fd = dial(f);
    const char *text = "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n";
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        abort();
    usleep(50000);
    close(fd);
    for (int i = 0; i < 2000 && f->n_aborted == 0; i++)
        usleep(10000);
}

static void a_client_that_leaves_is_an_abort(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = leave_early;
    run(f, NULL);
    assert_int_equal(f->n_aborted, 1);
    mem_free(f);
}

static void read_slowly(struct fixture *f)
{
    int fd = dial(f);
    static char buf[1 << 16];
    if (send(fd, f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
        abort();
    usleep(100000);
    for (ssize_t got = 1; got > 0;) {
        got = recv(fd, buf, sizeof buf, 0);
        if (got > 0)
            f->n_answer += (size_t)got;
    }
    close(fd);
}

static void a_stream_waits_for_a_slow_reader(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = read_slowly;
    f->send = "GET /stream" H "\r\n";
    f->n_chunks = 2000; /* the answer is 16 MB, more than the socket buffers hold */
    const struct http_limits limits = {.stream_high_water_bytes = 64 << 10};
    run(f, &limits);
    assert_true(f->n_answer > 2000u * 8192u);
    assert_true(f->n_drains > 0);
    assert_int_equal(f->n_aborted, 0);
    mem_free(f);
}

static void never_read(struct fixture *f)
{
    int fd = dial(f);
    if (send(fd, f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
        abort();
    for (int i = 0; i < 2000 && f->n_aborted == 0; i++)
        usleep(10000);
    close(fd);
}

static void a_reader_that_stalls_is_aborted(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = never_read;
    f->send = "GET /stream" H "\r\n";
    f->n_chunks = 4000;
    const struct http_limits limits = {.write_stall_ms = 100};
    run(f, &limits);
    assert_int_equal(f->n_aborted, 1);
    mem_free(f);
}

/* Headers and ids of one request must not be used for the next request on the connection. */
static void headers_and_ids_are_of_one_request(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = exchange;
    f->root_path = "/llm/";
    f->n_chunks = 2;
    f->send = "GET /llm/named HTTP/1.1\r\nHost: t\r\n\r\nGET /llmnamed HTTP/1.1\r\nHost: t\r\n\r\n"
              "GET /llm/stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    strbuf_init(&f->ended, 0);
    run(f, NULL);
    const char *named = strstr(f->answer, "X-Named: yes\r\n");
    assert_non_null(named);
    assert_null(strstr(named + 1, "X-Named"));
    assert_null(strstr(f->answer, "X-Worse"));
    assert_string_equal(strbuf_str(&f->ended).ptr,
                        "first /named 200 15 0; /llmnamed 200 18 0; /stream 200 16384 0;");
    strbuf_fini(&f->ended);
    mem_free(f);
}

/* ---- draining ---- */

/* Starts a drain while connections are open. `n_chunks` counts the passed checks. */
static void drain_under_connections(struct fixture *f)
{
    static const char get[] = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
    char answer[1024];
    int kept = dial(f), fresh = dial(f);
    f->n_chunks += send(kept, get, strlen(get), MSG_NOSIGNAL) > 0;
    f->n_chunks += recv(kept, answer, sizeof answer, 0) > 12 && strncmp(answer + 9, "200", 3) == 0;
    exchange(f); /* exchange() requests /drain and reads to the end */
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 200", 12) == 0;
    /* the connection is closed, because it has had an answer */
    f->n_chunks += recv(kept, answer, sizeof answer, 0) == 0;
    const int open[] = {fresh, f->late};
    for (size_t i = 0; i < 2; i++) {
        f->n_chunks += send(open[i], get, strlen(get), MSG_NOSIGNAL) > 0;
        f->n_chunks +=
            recv(open[i], answer, sizeof answer, 0) > 12 && strncmp(answer + 9, "200", 3) == 0;
        /* the connection is closed after its last answer */
        f->n_chunks += recv(open[i], answer, sizeof answer, 0) == 0;
        close(open[i]);
    }
    f->n_chunks += dial(f) < 0;
    close(kept);
}

static void a_drain_resets_nobody(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = drain_under_connections;
    f->send = "GET /drain HTTP/1.1\r\nHost: t\r\n\r\n";
    run(f, &(struct http_limits){0});
    assert_int_equal(f->n_chunks, 11);
    mem_free(f);
}

static void a_port_in_use_is_named(void **state)
{
    struct loop *l;
    struct error err = {0};
    struct http_server *a, *b;
    struct http_handlers h = {.on_request = on_request, .on_drain = on_drain, .on_abort = on_abort};
    assert_int_equal(loop_new(&l, &err), STATUS_OK);
    struct http_options o = {.host = "127.0.0.1"};
    assert_int_equal(http_server_start(l, &o, &h, &a, &err), STATUS_OK);
    o.port = http_server_port(a);
    assert_int_equal(http_server_start(l, &o, &h, &b, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, "in use"));
    o.host = "not-an-address";
    assert_int_equal(http_server_start(l, &o, &h, &b, &err), STATUS_INVALID);
    http_server_stop_accepting(a);
    http_server_close(a);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_requests_get_the_right_answer),
        cmocka_unit_test(compressed_bodies_are_decoded),
        cmocka_unit_test(a_thread_looks_at_a_large_body),
        cmocka_unit_test(a_handler_may_want_no_decoding),
        cmocka_unit_test(a_body_that_nobody_wants_is_not_read),
        cmocka_unit_test(the_sender_of_an_unwanted_body_reads_the_answer),
        cmocka_unit_test(headers_are_bounded),
        cmocka_unit_test(slow_requests_end_by_their_deadlines),
        cmocka_unit_test(a_client_that_leaves_is_an_abort),
        cmocka_unit_test(a_stream_waits_for_a_slow_reader),
        cmocka_unit_test(a_reader_that_stalls_is_aborted),
        cmocka_unit_test(headers_and_ids_are_of_one_request),
        cmocka_unit_test(a_drain_resets_nobody),
        cmocka_unit_test(a_port_in_use_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
