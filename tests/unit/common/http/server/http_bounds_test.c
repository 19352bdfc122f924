/* Tests the bounds on bytes that wait for a reader or a writer. Each script runs as the client
 * in a thread against a real server from http_fixture.h, and counts its passed checks.
 * Waiting bytes are bounded per tenant and in total, one client's bytes never block another
 * client, and a transfer that is too slow is closed. */
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

#include "tests/unit/common/http/server/http_fixture.h"

#define H " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"

enum { BODIES_TOTAL = 512 << 10 };

static int send_part(struct fixture *f, size_t declared, size_t sent)
{
    char head[128];
    char *body = mem_zalloc(sent);
    int fd = dial(f);
    snprintf(head, sizeof head, "POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: %zu\r\n\r\n",
             declared);
    memset(body, 'x', sent);
    if (send(fd, head, strlen(head), MSG_NOSIGNAL) < 0 || send(fd, body, sent, MSG_NOSIGNAL) < 0) {
        close(fd);
        fd = -1;
    }
    mem_free(body);
    return fd;
}

/* Calls `send_part` from another address of this machine, as another client. */
static int send_part_from(struct fixture *f, uint8_t last_byte, size_t declared, size_t sent)
{
    f->from = last_byte;
    int fd = send_part(f, declared, sent);
    f->from = 0;
    return fd;
}

static void answer_of(struct fixture *f, int fd)
{
    ssize_t n = recv(fd, f->answer, sizeof f->answer - 1, 0);
    f->answer[n > 0 ? n : 0] = '\0';
    close(fd);
}

/* One upload holds all that a client may hold, and never ends. Small requests still succeed. A
 * second large upload of the client is refused after its headers, and another client's upload
 * succeeds. */
static void hoard(struct fixture *f)
{
    int hoarder = send_part(f, BODIES_TOTAL / 2, BODIES_TOTAL / 2 - 1);
    for (int i = 0; i < 50; i++) {
        exchange(f);
        f->n_chunks += strncmp(f->answer, "HTTP/1.1 200", 12) == 0;
    }
    answer_of(f, send_part(f, BODIES_TOTAL / 2, 0));
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 503", 12) == 0;
    /* a body of this size exceeds the largest possible share */
    answer_of(f, send_part(f, BODIES_TOTAL / 2 + 1, 0));
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 413", 12) == 0;
    answer_of(f, send_part_from(f, 2, BODIES_TOTAL / 4, BODIES_TOTAL / 4));
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 200", 12) == 0;
    close(hoarder);
}

static void uploads_that_never_end_shut_out_no_one_else(void **state)
{
    const struct http_limits limits = {.max_body_bytes = 4 << 20,
                                       .max_body_bytes_total = BODIES_TOTAL};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = hoard;
    f->send = "POST /e HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    run(f, &limits);
    assert_int_equal(f->n_chunks, 53);
    assert_int_equal(f->load.counts.refused_bodies, 2);
    assert_int_equal(f->load.body_bytes, 0);
    mem_free(f);
}

/* Each request makes its handler hold 300 KiB. The first answer does not end, so a second
 * request of that client is refused. Another client's two requests succeed, because an answered
 * request holds nothing. */
static void hold_trees(struct fixture *f)
{
    static const char *const sent[] = {"GET /tree HTTP/1.1\r\nHost: t\r\n\r\n",
                                       "POST /tree" H "Content-Length: 1\r\n\r\nx",
                                       "POST /tree HTTP/1.1\r\nHost: t\r\nContent-Length: "
                                       "1\r\n\r\nxPOST /tree" H "Content-Length: 1\r\n\r\nx"};
    int open = -1;
    for (int i = 0; i < 3; i++) {
        f->from = i == 2 ? 2 : 1;
        f->send = sent[i];
        if (i > 0) {
            exchange(f);
            f->n_refused += strstr(f->answer, "HTTP/1.1 503") != NULL;
            continue;
        }
        open = dial(f);
        if (send(open, f->send, strlen(f->send), MSG_NOSIGNAL) < 0 ||
            recv(open, f->answer, 12, MSG_WAITALL) != 12)
            abort();
    }
    const char *first = strstr(f->answer, "HTTP/1.1 200");
    f->n_drains = first && strstr(first + 1, "HTTP/1.1 200") ? 2 : 0;
    f->from = 0;
    close(open);
}

static void hold_tree(void *ctx, struct http_request *r)
{
    if (http_hold(r, 300 << 10) != STATUS_OK)
        http_respond(r, 503, NULL, STR(""), NULL, 0);
    else if (http_body(r).len > 0)
        http_respond(r, 200, NULL, STR(""), NULL, 0);
    else
        http_stream_begin(r, 200, "text/plain", NULL, 0);
}

static void what_a_request_holds_is_bounded(void **state)
{
    const struct http_limits limits = {.max_body_bytes_total = 1 << 20, .max_body_bytes = 1 << 20};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = hold_trees;
    f->handler = hold_tree;
    run(f, &limits);
    assert_int_equal(f->n_refused, 1);
    assert_int_equal(f->n_drains, 2);
    assert_int_equal(f->load.counts.refused_bodies, 1);
    assert_int_equal(f->load.body_bytes, 0);
    mem_free(f);
}

/* ---- small bodies, and bytes sent ahead ---- */

enum { N_SMALL = 12, SMALL = 60000, SMALL_TOTAL = 4 * (SMALL + 256) };

/* Each body lacks one byte and is too small to be charged after its headers. A client's share is
 * two such bodies. Another client has its own share, and very small bodies are always accepted. */
static void hoard_small_ones(struct fixture *f)
{
    int fds[N_SMALL];
    for (int i = 0; i < N_SMALL; i++)
        fds[i] = send_part(f, SMALL, SMALL - 1);
    for (int i = 2; i < N_SMALL; i++) {
        ssize_t n = recv(fds[i], f->answer, 12, MSG_WAITALL);
        f->n_refused += n == 12 && memcmp(f->answer, "HTTP/1.1 503", 12) == 0;
    }
    answer_of(f, send_part(f, 8000, 8000));
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 200", 12) == 0;
    answer_of(f, send_part_from(f, 2, SMALL, SMALL));
    f->n_chunks += strncmp(f->answer, "HTTP/1.1 200", 12) == 0;
    for (int i = 0; i < N_SMALL; i++)
        close(fds[i]);
}

static void small_bodies_are_bounded_as_well(void **state)
{
    const struct http_limits limits = {.max_body_bytes_total = SMALL_TOTAL};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = hoard_small_ones;
    run(f, &limits);
    assert_int_equal(f->n_refused, N_SMALL - 2);
    assert_int_equal(f->n_chunks, 2);
    assert_int_equal(f->load.counts.refused_bodies, N_SMALL - 2);
    assert_int_equal(f->load.body_bytes, 0);
    mem_free(f);
}

/* Handles requests of tenant 7 with answers that do not end. The body is released, or taken at
 * /taken. Then the request holds as many bytes as the number at the body's end says. */
static void answer_without_end(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    const struct str body = http_body(r);
    const uint64_t tree = body.len > 8 ? strtoul(body.ptr + body.len - 8, NULL, 10) : 0;
    http_set_tenant(r, 7);
    if (str_eq_c(http_path(r), "/taken"))
        mem_free(http_take_body(r));
    else
        http_release_body(r);
    const enum status s = http_hold(r, tree);
    look(f);
    f->most_waiting = f->load.body_bytes;
    if (s != STATUS_OK)
        http_respond(r, s == STATUS_LIMIT ? 413 : 503, NULL, STR(""), NULL, 0);
    else
        http_stream_begin(r, 200, "text/plain", NULL, 0);
}

/* Sends a POST whose body ends with the number `tree`, and the bytes `behind` after it. Returns
 * the socket. */
static int post(struct fixture *f, const char *path, size_t n_body, size_t tree, const char *behind)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "POST %s HTTP/1.1\r\nHost: t\r\nContent-Length: %zu\r\n\r\n", path, n_body);
    strbuf_printf(&b, "%*zu%s", (int)n_body, tree, behind);
    const int fd = dial(f);
    if (send(fd, b.ptr, b.len, MSG_NOSIGNAL) != (ssize_t)b.len ||
        recv(fd, f->answer, 12, MSG_WAITALL) != 12)
        abort();
    strbuf_fini(&b);
    return fd;
}

/* Keeps more requests open than their bodies would fit in the budget. */
static void keep_many_open(struct fixture *f)
{
    int fds[2 * N_SMALL];
    for (int i = 0; i < 2 * N_SMALL; i++) {
        fds[i] = post(f, "/a", i % 2 ? SMALL : 2 * SMALL, 0, "");
        f->n_chunks += memcmp(f->answer, "HTTP/1.1 200", 12) == 0;
    }
    for (int i = 0; i < 2 * N_SMALL; i++)
        close(fds[i]);
}

static void bodies_that_were_read_hold_no_room(void **state)
{
    const struct http_limits limits = {.max_body_bytes_total = SMALL_TOTAL};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = keep_many_open;
    f->handler = answer_without_end;
    run(f, &limits);
    assert_int_equal(f->n_chunks, 2 * N_SMALL);
    assert_int_equal(f->load.counts.refused_bodies, 0);
    assert_int_equal(f->most_waiting, 0);
    mem_free(f);
}

/* Requests hold 20 KiB each, until the tenant has half of the budget. A request that holds up to
 * 16 KiB is always accepted. A request for more than any share gets a 413. */
static void keep_trees(struct fixture *f)
{
    static const size_t trees[] = {20 << 10, 16 << 10, 1 << 20};
    int fds[40];
    for (int i = 0; i < 40; i++) {
        fds[i] = post(f, "/a", 100, trees[i < 30 ? 0 : i < 39 ? 1 : 2], "");
        f->n_chunks += memcmp(f->answer, "HTTP/1.1 200", 12) == 0;
        f->n_refused += memcmp(f->answer, "HTTP/1.1 503", 12) == 0;
        f->n_drains += memcmp(f->answer, "HTTP/1.1 413", 12) == 0;
    }
    for (int i = 0; i < 40; i++)
        close(fds[i]);
}

static void trees_are_bounded(void **state)
{
    const struct http_limits limits = {.max_body_bytes_total = 1 << 20};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = keep_trees;
    f->handler = answer_without_end;
    run(f, &limits);
    assert_int_equal(f->n_chunks, (512 / 20) + 9);
    assert_int_equal(f->n_refused, 30 - 512 / 20);
    assert_int_equal(f->n_drains, 1);
    assert_int_equal(f->load.body_bytes, 0);
    mem_free(f);
}

/* A small body that its handler took still counts while bytes follow it. */
static void take_and_send_ahead(struct fixture *f)
{
    const int fd = post(f, "/taken", SMALL, 0, "GET /next HTTP/1.1\r\n");
    for (int i = 0; i < 20; i++) {
        f->n_chunks += send(fd, "x", 1, MSG_NOSIGNAL) == 1;
        usleep(2000);
    }
    close(post(f, "/a", 100, 0, ""));
    close(fd);
}

static void what_was_taken_counts_on(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = take_and_send_ahead;
    f->handler = answer_without_end;
    run(f, NULL);
    assert_int_equal(f->n_chunks, 20);
    assert_in_range(f->most_waiting, SMALL, SMALL + 512);
    mem_free(f);
}

/* Clients of many addresses send large unfinished headers. A tenant's body still fits in its own
 * budget. */
static void crowd_with_heads(struct fixture *f)
{
    static char head[31 << 10];
    int fds[2 * N_SMALL];
    const int n = snprintf(head, sizeof head, "GET /a HTTP/1.1\r\nX-A: ");
    memset(head + n, 'x', sizeof head - (size_t)n);
    for (int i = 0; i < 2 * N_SMALL; i++) {
        f->from = (uint8_t)(10 + i);
        fds[i] = dial(f);
        if (send(fds[i], head, sizeof head, MSG_NOSIGNAL) < 0)
            abort();
    }
    f->from = 0;
    usleep(100000);
    close(post(f, "/keyed", SMALL, 0, ""));
    for (int i = 0; i < 2 * N_SMALL; i++)
        close(fds[i]);
}

static void strangers_heads_have_their_own_room(void **state)
{
    const struct http_limits limits = {.max_body_bytes_total = SMALL_TOTAL};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = crowd_with_heads;
    f->handler = answer_without_end;
    run(f, &limits);
    assert_memory_equal(f->answer, "HTTP/1.1 200", 12);
    /* requests were refused, because the budget for headers is used up */
    assert_true(f->load.counts.refused_bodies > 0);
    mem_free(f);
}

/* The server reads only a few of the bytes after an unanswered request, and counts them. */
static void send_ahead(struct fixture *f)
{
    static const char hold[] = "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n";
    static char ahead[1 << 20];
    int fd = dial(f);
    if (send(fd, hold, strlen(hold), MSG_NOSIGNAL) < 0)
        abort();
    while (send(fd, ahead, sizeof ahead, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        ;
    for (int i = 0; i < 500 && f->n_held == 0; i++) {
        exchange(f);
        usleep(10000);
    }
    close(fd);
}

static void what_is_sent_ahead_counts(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = send_ahead;
    f->send = "GET /load" H "\r\n";
    run(f, NULL);
    assert_in_range(f->n_held, 16 << 10, 33 << 10);
    assert_int_equal(f->load.body_bytes, 0);
    mem_free(f);
}

/* The client sends one byte every 50 ms. It never stalls, but is far below the minimum rate. */
static void dribble(struct fixture *f)
{
    int fd = send_part(f, 1000, 1);
    for (int i = 0; i < 400 && send(fd, "x", 1, MSG_NOSIGNAL) == 1; i++) {
        usleep(50000);
        if (recv(fd, f->answer, sizeof f->answer - 1, MSG_DONTWAIT) > 0)
            break;
    }
    close(fd);
}

static void an_upload_that_crawls_is_ended(void **state)
{
    const struct http_limits limits = {.min_bytes_per_s = 1000, .rate_window_ms = 300};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = dribble;
    run(f, &limits);
    assert_memory_equal(f->answer, "HTTP/1.1 408", 12);
    assert_non_null(strstr(f->answer, "more slowly than"));
    assert_int_equal(f->load.counts.slow_bodies, 1);
    mem_free(f);
}

/* ---- answers that no client reads ---- */

enum { N_READERS = 12, ANSWERS_TOTAL = 16 << 20 };

/* Each client gets an answer of 3 MiB and does not read it. After the first few, clients get a
 * 503. Another client is served meanwhile. */
static void ask_and_do_not_read(struct fixture *f)
{
    int fds[N_READERS];
    for (int i = 0; i < N_READERS; i++) {
        fds[i] = dial(f);
        if (send(fds[i], f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
            abort();
        ssize_t n = recv(fds[i], f->answer, 12, MSG_WAITALL);
        f->n_refused += n == 12 && memcmp(f->answer, "HTTP/1.1 503", 12) == 0;
    }
    f->from = 2;
    int other = dial(f);
    f->from = 0;
    if (send(other, f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
        abort();
    answer_of(f, other);
    for (int i = 0; i < N_READERS; i++)
        close(fds[i]);
}

static void answers_that_wait_are_bounded(void **state)
{
    const struct http_limits limits = {.max_answer_bytes_total = ANSWERS_TOTAL};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = ask_and_do_not_read;
    f->send = "GET /large HTTP/1.1\r\nHost: t\r\n\r\n";
    run(f, &limits);
    assert_in_range(f->n_refused, N_READERS - 3, N_READERS - 2);
    assert_memory_equal(f->answer, "HTTP/1.1 200", 12);
    assert_int_equal(f->load.counts.refused_answers, f->n_refused);
    assert_true(f->most_waiting > 1 << 20 && f->most_waiting <= ANSWERS_TOTAL);
    mem_free(f);
}

/* Streams whose clients do not read share the budget, and each keeps a small part of it. */
static void ask_for_streams(struct fixture *f)
{
    int fds[N_READERS];
    for (int i = 0; i < N_READERS; i++) {
        fds[i] = dial(f);
        if (send(fds[i], f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
            abort();
    }
    for (int i = 0; i < 2000 && f->n_aborted < N_READERS; i++)
        usleep(10000);
    for (int i = 0; i < N_READERS; i++)
        close(fds[i]);
}

static void streams_that_nobody_reads_share_the_room(void **state)
{
    const struct http_limits limits = {.max_answer_bytes_total = 512 << 10,
                                       .stream_high_water_bytes = 256 << 10,
                                       .write_stall_ms = 800};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = ask_for_streams;
    f->send = "GET /stream HTTP/1.1\r\nHost: t\r\n\r\n";
    f->n_chunks = 1 << 20;
    run(f, &limits);
    assert_int_equal(f->n_aborted, N_READERS);
    assert_true(f->most_waiting <= (512 << 10) / 2 + N_READERS * (32 << 10));
    assert_int_equal(f->load.counts.slow_answers, N_READERS);
    mem_free(f);
}

/* The client reads a whole answer slowly but steadily, for much longer than the stall time. */
static void read_for_long(struct fixture *f)
{
    static char buf[32 << 10];
    int fd = dial(f), small = 16 << 10;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (send(fd, f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
        abort();
    for (ssize_t got = 1; got > 0; usleep(10000)) {
        got = recv(fd, buf, sizeof buf, 0);
        f->n_answer += got > 0 ? (size_t)got : 0;
    }
    close(fd);
}

static void an_answer_that_moves_is_never_cut_off(void **state)
{
    const struct http_limits limits = {
        .write_stall_ms = 250, .min_bytes_per_s = 10000, .rate_window_ms = 250};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = read_for_long;
    f->send = "GET /large" H "\r\n";
    run(f, &limits);
    assert_true(f->n_answer > LARGE_BYTES);
    assert_int_equal(f->load.counts.slow_answers, 0);
    mem_free(f);
}

/* The client reads a few bytes again and again, more slowly than the minimum rate. */
static void read_too_slowly(struct fixture *f)
{
    static char buf[256];
    int fd = dial(f), small = 4 << 10;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (send(fd, f->send, strlen(f->send), MSG_NOSIGNAL) < 0)
        abort();
    for (int i = 0; i < 1000 && recv(fd, buf, sizeof buf, 0) > 0; i++)
        usleep(20000);
    close(fd);
}

static void an_answer_that_crawls_is_ended(void **state)
{
    const struct http_limits limits = {.min_bytes_per_s = 1000000, .rate_window_ms = 400};
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = read_too_slowly;
    f->send = "GET /large" H "\r\n";
    run(f, &limits);
    assert_int_equal(f->load.counts.slow_answers, 1);
    mem_free(f);
}

/* An answer of known length is sent in pieces, and the connection stays open after it. */
static void a_sized_stream_keeps_its_connection(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->script = exchange;
    f->n_chunks = 4;
    f->send =
        "HEAD /sized HTTP/1.1\r\nHost: t\r\n\r\nGET /sized HTTP/1.1\r\nHost: t\r\n\r\nGET /next" H
        "\r\n";
    run(f, NULL);
    const char *head = strstr(f->answer, "Content-Length: 32768\r\n");
    const char *get = head ? strstr(head + 1, "Content-Length: 32768\r\n") : NULL;
    assert_non_null(get);
    const char *body = strstr(get, "\r\n\r\n") + 4;
    assert_int_equal(strspn(body, "x"), 32768);
    assert_memory_equal(body + 32768, "HTTP/1.1 200", 12);
    assert_non_null(strstr(body + 32768, "GET /next"));
    assert_null(strstr(f->answer, "Transfer-Encoding"));
    mem_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uploads_that_never_end_shut_out_no_one_else),
        cmocka_unit_test(what_a_request_holds_is_bounded),
        cmocka_unit_test(small_bodies_are_bounded_as_well),
        cmocka_unit_test(bodies_that_were_read_hold_no_room),
        cmocka_unit_test(trees_are_bounded),
        cmocka_unit_test(what_was_taken_counts_on),
        cmocka_unit_test(strangers_heads_have_their_own_room),
        cmocka_unit_test(what_is_sent_ahead_counts),
        cmocka_unit_test(an_upload_that_crawls_is_ended),
        cmocka_unit_test(answers_that_wait_are_bounded),
        cmocka_unit_test(streams_that_nobody_reads_share_the_room),
        cmocka_unit_test(an_answer_that_moves_is_never_cut_off),
        cmocka_unit_test(an_answer_that_crawls_is_ended),
        cmocka_unit_test(a_sized_stream_keeps_its_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
