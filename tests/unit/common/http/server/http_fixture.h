#pragma once
/* Runs a real loop and server on loopback. A blocking client in a thread runs a script against
 * it. Handlers: /load reports held requests, /stream writes n_chunks, /sized has a length,
 * /large sends LARGE_BYTES, /hold never answers, others echo the request. */
#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *stop;
    pthread_t client;
    void (*script)(struct fixture *f);
    void (*handler)(void *ctx, struct http_request *r); /* NULL = the handlers above */
    size_t (*look)(struct str body);                    /* NULL = nobody looks at a body */
    char answer[1 << 16];
    size_t n_answer;
    const char *send;
    size_t n_send;                           /* bytes to send; 0 = length of the string */
    _Atomic int n_aborted, n_held;           /* counts that the client's thread waits for */
    int n_chunks, n_drains, n_refused, late; /* late: connection accepted after a drain began */
    uint8_t from;          /* last byte of the client's address in 127.0.0.0/8; 0 = the default */
    struct http_load load; /* load of the server at its last answer or its end */
    uint64_t most_waiting;
    const char *root_path;
    struct strbuf ended; /* log of the calls of `on_answered` */
};

enum { LARGE_BYTES = 3 << 20 };
static inline int dial(struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(f->server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000000u | f->from)}};
    if (fd < 0 || (f->from && bind(fd, (struct sockaddr *)&own, sizeof own) != 0) ||
        connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        return -1;
    return fd;
}

static inline void look(struct fixture *f)
{
    http_server_load(f->server, &f->load);
    if (f->load.answer_bytes > f->most_waiting)
        f->most_waiting = f->load.answer_bytes;
}

static inline void fill(struct fixture *f, struct http_request *r)
{
    static char chunk[8192];
    memset(chunk, 'x', sizeof chunk);
    while (f->n_chunks > 0 && http_stream_room(r) >= sizeof chunk) {
        http_stream_write(r, (struct str){chunk, sizeof chunk});
        f->n_chunks--;
    }
    look(f);
    if (f->n_chunks == 0)
        http_stream_end(r);
}

static inline void on_request(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    const struct http_header_kv extra = {"X-Extra", "1"};
    http_add_header(r, "X-Bad", "a\r\nX-Worse: b");
    if (str_eq_c(http_path(r), "/named")) {
        http_set_id(r, "first");
        http_add_header(r, "X-Named", "yes");
    }
    if (str_eq_c(http_path(r), "/drain")) {
        f->late = dial(f);
        http_server_stop_accepting(f->server);
    }
    if (str_eq_c(http_path(r), "/stream")) {
        http_stream_begin(r, 200, "text/event-stream", NULL, 0);
        fill(f, r);
    } else if (str_eq_c(http_path(r), "/sized")) {
        const int n_chunks = f->n_chunks;
        http_stream_begin_sized(r, 200, "text/plain", (uint64_t)f->n_chunks * 8192);
        fill(f, r);
        f->n_chunks = n_chunks;
    } else if (str_eq_c(http_path(r), "/large")) {
        static char body[LARGE_BYTES];
        http_respond(r, 200, "text/plain", (struct str){body, LARGE_BYTES}, NULL, 0);
        look(f);
    } else if (str_eq_c(http_path(r), "/load")) {
        look(f);
        f->n_held = (int)f->load.body_bytes;
        http_respond(r, 200, NULL, STR(""), NULL, 0);
    } else if (!str_eq_c(http_path(r), "/hold")) {
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_printf(&b, STR_FMT " " STR_FMT "?" STR_FMT " [" STR_FMT "] " STR_FMT,
                      STR_ARG(http_method(r)), STR_ARG(http_path(r)), STR_ARG(http_query(r)),
                      STR_ARG(http_header(r, "x-a")), STR_ARG(http_body(r)));
        http_respond(r, 200, "text/plain", strbuf_str(&b), &extra, 1);
        strbuf_fini(&b);
    }
}

static inline void on_drain(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    f->n_drains++;
    fill(f, r);
}

static inline void on_abort(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    look(f);
    f->n_aborted++;
}

static inline void on_answered(void *ctx, const struct http_request *r,
                               const struct http_answered *a)
{
    struct fixture *f = ctx;
    if (!f->root_path)
        return;
    strbuf_printf(&f->ended, "%s " STR_FMT " %d %llu %d;", http_get_id(r), STR_ARG(http_path(r)),
                  a->status, (unsigned long long)a->body_bytes, a->aborted);
}

static inline bool unpacks(void *ctx, const struct http_request *r)
{
    return !str_eq_c(http_path(r), "/as_it_came");
}

static inline uint64_t body_max(void *ctx, struct http_request *r)
{
    if (str_eq_c(http_path(r), "/keyed"))
        http_set_tenant(r, 7);
    return str_eq_c(http_path(r), "/stranger") ? 0
           : str_eq_c(http_path(r), "/few")    ? 10
                                               : UINT64_MAX;
}

/* Sends f->send and reads until the server closes. */
static inline void exchange(struct fixture *f)
{
    int fd = dial(f);
    size_t n = f->n_send ? f->n_send : strlen(f->send);
    f->n_answer = 0;
    if (send(fd, f->send, n, MSG_NOSIGNAL) != (ssize_t)n)
        n = 0;
    for (ssize_t got = 1; got > 0 && f->n_answer < sizeof f->answer - 1;
         f->n_answer += (size_t)got) {
        got = recv(fd, f->answer + f->n_answer, sizeof f->answer - 1 - f->n_answer, 0);
        if (got < 0)
            got = 0;
    }
    f->answer[f->n_answer] = '\0';
    close(fd);
}

static inline void *client_main(void *ctx)
{
    struct fixture *f = ctx;
    f->script(f);
    loop_wake(f->stop);
    return NULL;
}

static inline void on_stop(void *ctx)
{
    struct fixture *f = ctx;
    look(f);
    http_server_close(f->server);
    loop_stop(f->loop);
}

static inline void run(struct fixture *f, const struct http_limits *limits)
{
    struct error err = {0};
    struct http_options o = {.host = "127.0.0.1", .server_name = "test", .root_path = f->root_path};
    if (limits)
        o.limits = *limits;
    struct http_handlers h = {.ctx = f,
                              .on_request = f->handler ? f->handler : on_request,
                              .on_drain = on_drain,
                              .on_abort = on_abort,
                              .on_answered = on_answered,
                              .unpacks = unpacks,
                              .look = f->look,
                              .body_max = body_max};
    assert_int_equal(loop_new(&f->loop, &err), STATUS_OK);
    assert_int_equal(http_server_start(f->loop, &o, &h, &f->server, &err), STATUS_OK);
    f->stop = loop_wakeup_new(f->loop, on_stop, f);
    assert_int_equal(pthread_create(&f->client, NULL, client_main, f), 0);
    loop_run(f->loop);
    pthread_join(f->client, NULL);
    loop_free(f->loop);
}
