/* One HTTP connection: bytes to requests to answers. The state says who may act; every wait has a
 * deadline on one timer. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/net/content_coding.h"
#include "common/net/http_internal.h"
#include "common/net/tls.h"

enum {
    LINGER_MS = 2000,
    LINGER_BYTES = 64 << 20,
    PENDING_MAX = 64 << 10,
    DRAIN_FRESH_MS = 1000,
    DRAIN_READ_MS = 5000
};

static const unsigned conn_next[CONN_STATE_COUNT] = {
    [CONN_READING] =
        1u << CONN_DECODING | 1u << CONN_WAITING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_DECODING] = 1u << CONN_WAITING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_WAITING] = 1u << CONN_STREAMING | 1u << CONN_FLUSHING | 1u << CONN_CLOSING,
    [CONN_STREAMING] = 1u << CONN_FLUSHING | 1u << CONN_CLOSING,
    [CONN_FLUSHING] = 1u << CONN_READING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_LINGERING] = 1u << CONN_CLOSING,
};

struct write {
    uv_write_t req;
    size_t n;
    char bytes[];
};

static void process(struct conn *c);
static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void enter(struct conn *c, enum conn_state next)
{
    assert(conn_next[c->state] & 1u << next);
    c->state = next;
}

static struct conn *conn_of(const struct http_request *r)
{
    return (struct conn *)r; /* the request is the first member */
}

/* ---- end ---- */

static void forget_decoded(struct conn *c)
{
    mem_free((void *)c->decoded.ptr);
    c->decoded = (struct str){0};
}

void conn_release(struct conn *c)
{
    if (--c->open_handles > 0)
        return;
    forget_decoded(c);
    struct http_server *s = c->server;
    http_parser_free(c->parser);
    tls_session_free(c->tls);
    strbuf_fini(&c->pending);
    strbuf_fini(&c->added);
    mem_free(c); /* the only free of a connection in the program */
    http_server_release(s);
}

static void on_closed(uv_handle_t *h)
{
    conn_release(h->data);
}

static void release_body(struct conn *c)
{
    c->server->body_bytes -= c->body_charged;
    c->body_charged = 0;
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->tls && !c->cut)
        conn_tls_goodbye(c);
    enter(c, CONN_CLOSING);
    if (c->decoding)
        (void)uv_cancel((uv_req_t *)c->decoding); /* where it has not begun */
    release_body(c);
    gather_drop(c);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->server->n_conns--;
    uv_close(&c->io.handle, on_closed);
    uv_close((uv_handle_t *)&c->deadline, on_closed);
}

static void tell_answered(struct conn *c, bool aborted)
{
    struct http_server *s = c->server;
    if (!s->handlers.on_answered)
        return;
    c->answered.aborted = aborted;
    c->answered.duration_ns = clock_mono_ns() - c->arrived_ns;
    s->handlers.on_answered(s->handlers.ctx, &c->request, &c->answered);
}

void conn_abort(struct conn *c)
{
    bool held = c->state == CONN_WAITING || c->state == CONN_STREAMING;
    struct http_server *s = c->server;
    c->cut = held || c->queued_bytes + c->gathered_bytes > 0;
    conn_close(c);
    if (held && s->handlers.on_abort)
        s->handlers.on_abort(s->handlers.ctx, &c->request);
    if (held)
        tell_answered(c, true);
}

bool conn_is_idle(const struct conn *c)
{
    return c->state == CONN_READING && http_parser_idle(c->parser);
}

bool conn_has_work(const struct conn *c)
{
    return c->state == CONN_READING || c->state == CONN_DECODING || c->state == CONN_WAITING ||
           c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *t);

static void arm(struct conn *c, uint64_t ms)
{
    uv_update_time(c->deadline.loop);
    uv_timer_start(&c->deadline, on_deadline, ms, 0);
}

static void arm_reading(struct conn *c)
{
    const struct http_limits *l = &c->server->limits;
    if (c->server->draining)
        return; /* what conn_drain gave it is all it has */
    if (http_parser_idle(c->parser))
        arm(c, l->idle_timeout_ms);
    else if (!http_parser_in_body(c->parser))
        arm(c, l->header_timeout_ms);
    else
        arm(c, l->body_timeout_ms);
}

/* A client that has just connected is about to ask: to close on it would be an error that it did
 * not see coming, where one whose connection was answered before knows that it may be closed. */
void conn_drain(struct conn *c)
{
    if (c->state != CONN_READING)
        return;
    if (!http_parser_idle(c->parser))
        arm(c, DRAIN_READ_MS);
    else if (c->has_asked)
        conn_close(c);
    else
        arm(c, DRAIN_FRESH_MS);
}

void conn_abort_soon(struct conn *c)
{
    arm(c, 0); /* the deadline does it */
}

/* ---- writing ---- */

/* The answer is out, and the body that nobody wanted still comes: to close on it would be a reset,
 * which takes the answer away from a client that has not read it. */
static void leave_body(struct conn *c)
{
    strbuf_reset(&c->pending);
    if (c->read_stopped)
        uv_read_start(&c->io.stream, on_alloc, on_read);
    c->read_stopped = false;
    conn_linger(c);
    if (c->tls)
        conn_tls_goodbye(c);
    else
        uv_shutdown(&c->shutdown, &c->io.stream, NULL);
}

static void after_flush(struct conn *c)
{
    if (http_parser_message(c->parser)->body_left) {
        leave_body(c);
        return;
    }
    if (!c->keep_alive || c->server->draining) {
        conn_close(c);
        return;
    }
    enter(c, CONN_READING);
    release_body(c);
    forget_decoded(c);
    http_parser_reset(c->parser);
    arm_reading(c);
    process(c);
}

/* What TLS says by itself while a request is read or waited for moves no deadline: new keys, asked
 * for again and again, would keep a request that never ends. */
static bool is_answering(const struct conn *c)
{
    return c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

/* Something was written, and how much is left is known. */
static void go_on(struct conn *c)
{
    if (c->queued_bytes == 0 && c->state == CONN_LINGERING) {
        uv_shutdown(&c->shutdown, &c->io.stream, NULL); /* that was all; we still read */
        return;
    }
    if (c->queued_bytes == 0 && c->state == CONN_FLUSHING) {
        after_flush(c);
        return;
    }
    if (c->wants_drain && c->state == CONN_STREAMING &&
        c->queued_bytes + c->gathered_bytes <= c->server->limits.stream_high_water_bytes / 2) {
        c->wants_drain = false;
        if (c->server->handlers.on_drain)
            c->server->handlers.on_drain(c->server->handlers.ctx, &c->request);
    }
}

static void on_written(uv_write_t *req, int rc)
{
    struct write *w = (struct write *)req;
    struct conn *c = req->handle->data;
    c->queued_bytes -= w->n;
    mem_free(w);
    if (c->queued_bytes == 0)
        c->tls_own_bytes = 0;
    if (c->state == CONN_CLOSING)
        return;
    if (rc < 0) {
        conn_abort(c);
        return;
    }
    if (c->queued_bytes > 0 && c->state > CONN_WAITING)
        arm(c, c->server->limits.write_stall_ms); /* it moves */
    else if (c->state == CONN_STREAMING)
        uv_timer_stop(&c->deadline);
    if (c->gathered_bytes == 0 || c->state == CONN_STREAMING)
        go_on(c);
}

/* Copies a, b and d into one write. false: the connection is gone (the handler was told). */
bool conn_send_plain(struct conn *c, struct str a, struct str b, struct str d)
{
    size_t n = a.len + b.len + d.len;
    struct write *w = mem_alloc(sizeof *w + n);
    w->n = n;
    memcpy(w->bytes, a.ptr, a.len);
    if (b.len)
        memcpy(w->bytes + a.len, b.ptr, b.len);
    if (d.len)
        memcpy(w->bytes + a.len + b.len, d.ptr, d.len);
    uv_buf_t buf = uv_buf_init(w->bytes, (unsigned)n);
    if (is_answering(c) && (c->queued_bytes == 0 || !uv_is_active((uv_handle_t *)&c->deadline)))
        arm(c, c->server->limits.write_stall_ms);
    c->queued_bytes += n;
    /* A refused write comes back through on_written as well, on the next turn: never from here, so
     * that a handler is not told of an abort inside its own call. */
    int rc = uv_write(&w->req, &c->io.stream, &buf, 1, on_written);
    if (rc == 0)
        return true;
    c->queued_bytes -= n;
    mem_free(w);
    conn_abort_soon(c);
    return false;
}

static bool send_bytes(struct conn *c, struct str a, struct str b, struct str d)
{
    return c->tls ? conn_tls_send(c, a, b, d) : conn_send_plain(c, a, b, d);
}

void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n)
{
    size_t done = 0;
    if (c->queued_bytes == 0 && !c->tls) {
        int rc = uv_try_write(&c->io.stream, pieces, n);
        done = rc > 0 ? (size_t)rc : 0; /* an error comes again, from uv_write */
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t k = done < pieces[i].len ? done : pieces[i].len;
        done -= k;
        if (k < pieces[i].len)
            send_bytes(c, (struct str){pieces[i].base + k, pieces[i].len - k}, STR(""), STR(""));
    }
}

void conn_flushed(struct conn *c)
{
    if (c->gathered_bytes == 0)
        go_on(c);
}

static void append_date(struct strbuf *b)
{
    static _Thread_local time_t last;
    static _Thread_local char text[40];
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    if (now != last) {
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        last = now;
    }
    strbuf_printf(b, "Date: %s\r\n", text);
}

static void append_head(struct conn *c, struct strbuf *b, int status, const char *content_type)
{
    strbuf_printf(b, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    append_date(b);
    if (c->server->name[0])
        strbuf_printf(b, "Server: %s\r\n", c->server->name);
    if (content_type)
        strbuf_printf(b, "Content-Type: %s\r\n", content_type);
    if (!c->keep_alive)
        strbuf_append_c(b, "Connection: close\r\n");
    else if (http_parser_message(c->parser)->is_http10)
        strbuf_append_c(b, "Connection: keep-alive\r\n");
}

void http_set_id(struct http_request *r, const char *id)
{
    struct conn *c = conn_of(r);
    snprintf(c->id, sizeof c->id, "%s", id);
}

const char *http_get_id(const struct http_request *r)
{
    return conn_of(r)->id;
}

void http_add_header(struct http_request *r, const char *name, const char *value)
{
    struct strbuf *b = &conn_of(r)->added;
    if (!strpbrk(name, "\r\n") && !strpbrk(value, "\r\n") &&
        b->len + strlen(name) + strlen(value) + 4 <= HTTP_ADDED_MAX)
        strbuf_printf(b, "%s: %s\r\n", name, value);
}

static void append_extra(struct strbuf *b, const struct http_header_kv *extra, size_t n_extra)
{
    for (size_t i = 0; i < n_extra; i++)
        if (!strpbrk(extra[i].name, "\r\n") && !strpbrk(extra[i].value, "\r\n"))
            strbuf_printf(b, "%s: %s\r\n", extra[i].name, extra[i].value);
}

void http_respond(struct http_request *r, int status, const char *content_type, struct str body,
                  const struct http_header_kv *extra, size_t n_extra)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_WAITING);
    struct strbuf head;
    strbuf_init(&head, 0);
    c->keep_alive = c->keep_alive && !c->server->draining;
    append_head(c, &head, status, content_type);
    strbuf_append_str(&head, strbuf_str(&c->added));
    append_extra(&head, extra, n_extra);
    if (status != 204 && status != 304)
        strbuf_printf(&head, "Content-Length: %zu\r\n", body.len);
    strbuf_append_c(&head, "\r\n");
    bool silent = http_parser_message(c->parser)->is_head || status == 204 || status == 304;
    c->answered.status = status;
    c->answered.body_bytes = silent ? 0 : body.len;
    enter(c, CONN_FLUSHING);
    send_bytes(c, strbuf_str(&head), silent ? STR("") : body, STR(""));
    strbuf_fini(&head);
    tell_answered(c, false);
}

void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       const struct http_header_kv *extra, size_t n_extra)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_WAITING);
    struct strbuf head;
    strbuf_init(&head, 0);
    c->chunked = !http_parser_message(c->parser)->is_http10;
    c->keep_alive = c->keep_alive && c->chunked && !c->server->draining;
    c->answered.status = status;
    append_head(c, &head, status, content_type);
    strbuf_append_str(&head, strbuf_str(&c->added));
    append_extra(&head, extra, n_extra);
    strbuf_append_c(&head, c->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    enter(c, CONN_STREAMING);
    gather_add(c, strbuf_str(&head));
    strbuf_fini(&head);
}

size_t http_stream_room(const struct http_request *r)
{
    struct conn *c = conn_of(r);
    uint64_t high = c->server->limits.stream_high_water_bytes;
    if (c->state != CONN_STREAMING)
        return 0;
    uint64_t held = c->queued_bytes + c->gathered_bytes;
    if (held > high / 2)
        c->wants_drain = true; /* the caller may find this too little and wait */
    return held < high ? (size_t)(high - held) : 0;
}

/* "1f\r\n" */
static struct str chunk_size(size_t n, char out[20])
{
    char *at = out + 20;
    *--at = '\n';
    *--at = '\r';
    do {
        *--at = "0123456789abcdef"[n & 15];
        n >>= 4;
    } while (n > 0);
    return (struct str){at, (size_t)(out + 20 - at)};
}

void http_stream_write(struct http_request *r, struct str chunk)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_STREAMING);
    if (chunk.len == 0 || http_parser_message(c->parser)->is_head)
        return;
    c->answered.body_bytes += chunk.len;
    if (c->chunked) {
        char size[20];
        gather_add(c, chunk_size(chunk.len, size));
        gather_add(c, chunk);
        gather_add(c, STR("\r\n"));
    } else {
        gather_add(c, chunk);
    }
}

void http_stream_end(struct http_request *r)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_STREAMING);
    bool bare = !c->chunked || http_parser_message(c->parser)->is_head;
    enter(c, CONN_FLUSHING);
    tell_answered(c, false);
    if (!bare)
        gather_add(c, STR("0\r\n\r\n"));
    else if (c->queued_bytes + c->gathered_bytes == 0)
        after_flush(c);
}

void http_drop(struct http_request *r)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_WAITING || c->state == CONN_STREAMING);
    conn_close(c);
    tell_answered(c, true);
}

/* ---- errors of our own ---- */

/* As in vLLM and in the gateway's own answers (gateway/api_error.c). */
static const char *error_type(int status)
{
    return status < 500    ? "BadRequestError"
           : status == 501 ? "NotImplementedError"
           : status == 503 ? "ServiceUnavailableError"
                           : "InternalServerError";
}

void conn_linger(struct conn *c)
{
    enter(c, CONN_LINGERING);
    release_body(c);
    c->linger_left = LINGER_BYTES;
    arm(c, LINGER_MS);
}

void conn_refuse(struct conn *c, int status, const char *text)
{
    struct strbuf body, head;
    strbuf_init(&body, 0);
    strbuf_init(&head, 0);
    strbuf_append_c(&body, "{\"error\":{\"message\":");
    strbuf_append_json(&body, str_from(text));
    strbuf_printf(&body, ",\"type\":\"%s\",\"param\":null,\"code\":%d}}", error_type(status),
                  status);
    c->keep_alive = false;
    append_head(c, &head, status, "application/json");
    if (status == 503)
        strbuf_append_c(&head, "Retry-After: 1\r\n");
    if (status == 415)
        strbuf_append_c(&head, "Accept-Encoding: " CONTENT_CODINGS "\r\n");
    strbuf_printf(&head, "Content-Length: %zu\r\n\r\n", body.len);
    send_bytes(c, strbuf_str(&head), strbuf_str(&body), STR(""));
    strbuf_fini(&body);
    strbuf_fini(&head);
    conn_linger(c);
    if (c->tls)
        conn_tls_goodbye(c);
}

static void on_deadline(uv_timer_t *t)
{
    struct conn *c = t->data;
    if (c->state == CONN_READING && !http_parser_idle(c->parser))
        conn_refuse(c, 408, "The request did not arrive in time");
    else
        conn_abort(c); /* idle, lingering, or a write that does not move */
}

/* ---- reading ---- */

/* Accounts what this request's body holds now against all bodies being read. Small ones are free
 * (the number of connections bounds them): a few uploads that never end must not shut out
 * everybody. */
static bool charge_body(struct conn *c)
{
    uint64_t held = http_parser_held_bytes(c->parser) + c->decoded.len;
    if (held <= HTTP_SMALL_BODY_BYTES)
        held = 0;
    c->server->body_bytes += held - c->body_charged;
    c->body_charged = held;
    return c->server->body_bytes <= c->server->limits.max_body_bytes_total;
}

static uint64_t on_head(void *ctx)
{
    struct conn *c = ctx;
    const struct http_handlers *h = &c->server->handlers;
    return h->body_max ? h->body_max(h->ctx, &c->request) : UINT64_MAX;
}

static void hand_over(struct conn *c)
{
    enter(c, CONN_WAITING);
    c->server->handlers.on_request(c->server->handlers.ctx, &c->request);
}

void conn_decoded(struct conn *c, struct str owned_body)
{
    c->decoded = owned_body;
    if (charge_body(c))
        hand_over(c);
    else
        conn_refuse(c, 503, "Too many large requests are being read; try again in a moment");
}

static void deliver(struct conn *c)
{
    const struct http_message *m = http_parser_message(c->parser);
    c->has_asked = true;
    c->keep_alive = m->keep_alive;
    c->request.user = c->request.note = NULL;
    c->id[0] = '\0';
    c->answered = (struct http_answered){.status = 499};
    c->arrived_ns = clock_mono_ns();
    strbuf_reset(&c->added);
    uv_timer_stop(&c->deadline);
    if (!conn_decode(c))
        hand_over(c);
    else if (c->state == CONN_READING)
        enter(c, CONN_DECODING);
}

/* Feeds bytes to the parser; what is left over stays for the next request. Returns bytes used. */
static size_t feed(struct conn *c, struct str bytes)
{
    bool was_idle = http_parser_idle(c->parser), was_in_body = http_parser_in_body(c->parser);
    size_t used = 0;
    enum http_parse result = http_parser_feed(c->parser, bytes, &used);
    if (result == HTTP_PARSE_ERROR) {
        conn_refuse(c, http_parser_error_status(c->parser), http_parser_error_text(c->parser));
        return bytes.len;
    }
    if (!charge_body(c)) {
        conn_refuse(c, 503, "Too many large requests are being read; try again in a moment");
        return bytes.len;
    }
    if (result == HTTP_PARSE_DONE) {
        deliver(c);
        return used;
    }
    if (result == HTTP_PARSE_CONTINUE)
        send_bytes(c, STR("HTTP/1.1 100 Continue\r\n\r\n"), STR(""), STR(""));
    /* The header deadline runs from the first byte, the body's from each piece that comes. */
    if (was_idle || was_in_body || http_parser_in_body(c->parser))
        arm_reading(c);
    return used;
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct conn *c = h->data;
    /* One record more than comes in may come out of TLS, and all of it has to fit in c->pending. */
    size_t n = sizeof c->server->read_buffer / (c->tls ? 2 : 1);
    *buf = uv_buf_init(c->server->read_buffer, (unsigned)n);
}

static void process(struct conn *c)
{
    while (c->state == CONN_READING && c->pending.len > 0) {
        size_t used = feed(c, strbuf_str(&c->pending));
        strbuf_consume(&c->pending, used);
    }
    if (c->state == CONN_READING && c->read_stopped) {
        c->read_stopped = false;
        uv_read_start(&c->io.stream, on_alloc, on_read);
    }
}

/* Bytes behind an unanswered request: kept up to a bound, then the socket fills up instead. */
static void keep_pending(struct conn *c, struct str bytes)
{
    strbuf_append_str(&c->pending, bytes);
    if (c->pending.len >= PENDING_MAX) {
        c->read_stopped = true;
        uv_read_stop(&c->io.stream);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (n == 0 || c->state == CONN_CLOSING)
        return;
    struct str bytes = {buf->base, n > 0 ? (size_t)n : 0};
    if (n == UV_EOF)
        conn_on_eof(c);
    else if (n < 0)
        conn_abort(c);
    else if (c->tls)
        conn_tls_on_bytes(c, bytes);
    else
        conn_on_plain(c, bytes);
}

void conn_on_eof(struct conn *c)
{
    if (c->state == CONN_FLUSHING)
        c->keep_alive = false; /* it has said all it wants: let it read the answer */
    else
        conn_abort(c);
}

void conn_on_plain(struct conn *c, struct str bytes)
{
    if (c->state == CONN_LINGERING) {
        if (bytes.len >= c->linger_left)
            conn_close(c);
        else
            c->linger_left -= bytes.len;
        return;
    }
    if (c->state != CONN_READING || c->pending.len > 0) {
        keep_pending(c, bytes);
        process(c);
        return;
    }
    size_t used = feed(c, bytes);
    if (used < bytes.len && c->state != CONN_CLOSING && c->state != CONN_LINGERING)
        keep_pending(c, (struct str){bytes.ptr + used, bytes.len - used});
}

/* ---- begin ---- */

static int take_stream(struct http_server *s, struct conn *c, int fd)
{
    if (fd < 0)
        return uv_accept(&s->listener.stream, &c->io.stream);
    int rc = s->is_unix ? uv_pipe_open(&c->io.pipe, fd) : uv_tcp_open(&c->io.tcp, fd);
    if (rc != 0)
        close(fd);
    return rc;
}

void conn_accept(struct http_server *s, bool over_limit, int fd)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->server = s;
    if (s->is_unix)
        uv_pipe_init(s->listener.handle.loop, &c->io.pipe, 0);
    else
        uv_tcp_init(s->listener.handle.loop, &c->io.tcp);
    uv_timer_init(s->listener.handle.loop, &c->deadline);
    c->io.handle.data = c->deadline.data = c;
    c->open_handles = 2;
    s->open_handles++;
    s->n_conns++;
    c->next = s->conns;
    c->prev = &s->conns;
    if (c->next)
        c->next->prev = &c->next;
    s->conns = c;
    struct http_parser_limits limits = {s->limits.max_header_bytes, s->limits.max_body_bytes};
    c->parser = http_parser_new(&limits);
    http_parser_on_head(c->parser, on_head, c);
    strbuf_init(&c->pending, PENDING_MAX + HTTP_READ_BUFFER);
    strbuf_init(&c->added, HTTP_ADDED_MAX);
    if (take_stream(s, c, fd) != 0 || (s->tls && !conn_tls_begin(c)) ||
        uv_read_start(&c->io.stream, on_alloc, on_read) != 0) {
        conn_close(c);
        return;
    }
    if (!s->is_unix)
        uv_tcp_nodelay(&c->io.tcp, 1);
    if (over_limit && c->tls)
        conn_close(c); /* a handshake costs more than the answer is worth */
    else if (over_limit)
        conn_refuse(c, 503, "Too many connections; try again in a moment");
    else
        arm(c, s->limits.header_timeout_ms);
}

/* ---- the request's views ---- */

struct str http_method(const struct http_request *r)
{
    return http_parser_message(conn_of(r)->parser)->method;
}

struct str http_path(const struct http_request *r)
{
    struct str path = http_parser_message(conn_of(r)->parser)->path;
    const char *root = conn_of(r)->server->root_path;
    size_t n = root ? strlen(root) : 0;
    while (n > 0 && root[n - 1] == '/')
        n--;
    if (n > 0 && path.len > n && memcmp(path.ptr, root, n) == 0 && path.ptr[n] == '/')
        return (struct str){path.ptr + n, path.len - n};
    return path;
}

struct str http_query(const struct http_request *r)
{
    return http_parser_message(conn_of(r)->parser)->query;
}

struct str http_body(const struct http_request *r)
{
    const struct conn *c = conn_of(r);
    return c->decoded.ptr ? c->decoded : http_parser_message(c->parser)->body;
}

char *http_take_body(struct http_request *r)
{
    struct conn *c = conn_of(r);
    char *owned = (char *)c->decoded.ptr;
    c->decoded = (struct str){0};
    if (owned) /* the compressed one is of no use to anybody */
        mem_free(http_parser_take_body(c->parser));
    return owned ? owned : http_parser_take_body(c->parser);
}

bool is_header(const struct http_field *f, const char *name)
{
    size_t len = strlen(name);
    return f->name.len == len && strncasecmp(f->name.ptr, name, len) == 0;
}

struct str http_header(const struct http_request *r, const char *name)
{
    const struct http_message *m = http_parser_message(conn_of(r)->parser);
    for (uint32_t i = 0; i < m->n_fields; i++)
        if (is_header(&m->fields[i], name))
            return m->fields[i].value;
    return STR("");
}

bool http_header_at(const struct http_request *r, uint32_t i, struct str *name, struct str *value)
{
    const struct http_message *m = http_parser_message(conn_of(r)->parser);
    if (i >= m->n_fields)
        return false;
    *name = m->fields[i].name;
    *value = m->fields[i].value;
    return true;
}

void http_set_user(struct http_request *r, void *user)
{
    r->user = user;
}

void *http_get_user(const struct http_request *r)
{
    return r->user;
}

void http_set_note(struct http_request *r, void *note)
{
    r->note = note;
}

void *http_get_note(const struct http_request *r)
{
    return r->note;
}
