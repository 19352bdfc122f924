/* Runs one HTTP connection. The parser turns bytes from the socket (or from its TLS session)
 * into requests for the server's handlers. When an answer is written, the next request is read
 * from `pending` or from the socket.
 * The state (conn/state.h) says which step is allowed, and every wait has a deadline on the one
 * timer. Bytes after an unanswered request are kept up to PENDING_MAX, then reading stops.
 * conn_close may be called in every callback. conn_release frees the connection when its handles
 * are closed. */
#include "common/http/server/conn.h"

#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/conn/charge.h"
#include "common/http/conn/coding.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/output.h"
#include "common/http/conn/places.h"
#include "common/http/conn/refuse.h"
#include "common/http/conn/timer.h"
#include "common/http/server/tls.h"

enum { PENDING_MAX = 16 << 10, EXTRA_MAX = 128 };

static void process(struct conn *c);
static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

/* ---- writing ---- */

/* Keeps the connection open after an answer whose request body was refused and still arrives. A
 * close now would send a reset, and a client that has not read the answer would lose it. */
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

void conn_after_flush(struct conn *c)
{
    if (http_parser_message(c->parser)->body_left) {
        leave_body(c);
        return;
    }
    if (!c->keep_alive || c->server->draining) {
        conn_close(c);
        return;
    }
    conn_enter(c, CONN_READING);
    conn_release_rooms(c);
    conn_forget_decoded(c);
    http_parser_reset(c->parser);
    c->tenant = 0;
    conn_arm_reading(c);
    process(c);
}

/* Continues after a write, when the number of waiting bytes is known. */
static void go_on(struct conn *c)
{
    if (c->queued_bytes == 0 && c->state == CONN_LINGERING) {
        /* everything is sent, so this ends our side; reading continues */
        uv_shutdown(&c->shutdown, &c->io.stream, NULL);
        return;
    }
    if (c->queued_bytes == 0 && c->state == CONN_FLUSHING) {
        conn_after_flush(c);
        return;
    }
    if (c->wants_drain && c->state == CONN_STREAMING &&
        c->queued_bytes + c->gathered_bytes <= c->server->limits.stream_high_water_bytes / 2) {
        c->wants_drain = false;
        if (c->server->handlers.on_drain)
            c->server->handlers.on_drain(c->server->handlers.ctx, &c->request);
    }
}

void conn_written(struct conn *c, int rc)
{
    if (rc < 0) {
        conn_abort(c);
        return;
    }
    conn_charge_answer(c);
    if (c->queued_bytes == 0 && c->state == CONN_STREAMING)
        uv_timer_stop(&c->deadline); /* a stream with nothing to send is not slow */
    if (c->gathered_bytes == 0 || c->state == CONN_STREAMING)
        go_on(c);
}

void conn_flushed(struct conn *c)
{
    conn_charge_answer(c);
    if (c->gathered_bytes == 0)
        go_on(c);
}

/* ---- reading ---- */

/* Returns the most bytes that a body may have, when the headers are complete. A body that does
 * not fit in its budget is refused before it is sent. */
static uint64_t on_head(void *ctx)
{
    struct conn *c = ctx;
    const struct http_handlers *h = &c->server->handlers;
    const uint64_t max = h->body_max ? h->body_max(h->ctx, &c->request) : UINT64_MAX;
    const uint64_t announced = http_parser_announced(c->parser);
    if (announced > max || announced > c->server->limits.max_body_bytes)
        return max; /* the parser (413) or the handler refuses the body */
    c->announced = max > 0 ? announced : 0;
    c->no_room = !conn_charge_body(c);
    if (!c->no_room)
        return max;
    c->announced = 0;
    return 0;
}

static void hand_over(struct conn *c)
{
    conn_enter(c, CONN_WAITING);
    c->server->handlers.on_request(c->server->handlers.ctx, &c->request);
}

static void on_decoded(struct conn *c, struct str owned_body)
{
    c->decoded = owned_body;
    if (conn_charge_body(c))
        hand_over(c);
    else
        conn_refuse_for_room(c);
}

static void deliver(struct conn *c)
{
    const struct http_message *m = http_parser_message(c->parser);
    c->has_asked = true;
    if (c->no_room) {
        c->no_room = false;
        conn_refuse_for_room(c);
        return;
    }
    c->keep_alive = m->keep_alive;
    c->request.user = c->request.note = NULL;
    c->looked = 0;
    c->id[0] = '\0';
    c->answered = (struct http_answered){.status = 499};
    c->arrived_ns = clock_mono_ns();
    strbuf_reset(&c->added);
    uv_timer_stop(&c->deadline);
    if (!conn_decode(c, on_decoded))
        hand_over(c);
    else if (c->state == CONN_READING)
        conn_enter(c, CONN_DECODING);
}

/* Feeds bytes to the parser and returns how many were used. The rest is kept for the next
 * request. */
static size_t feed(struct conn *c, struct str bytes)
{
    bool was_idle = http_parser_idle(c->parser), was_in_body = http_parser_in_body(c->parser);
    size_t used = 0;
    enum http_parse result = http_parser_feed(c->parser, bytes, &used);
    if (result == HTTP_PARSE_ERROR) {
        conn_refuse(c, http_parser_error_status(c->parser), http_parser_error_text(c->parser));
        return bytes.len;
    }
    if (!c->no_room && !conn_charge_body(c)) {
        conn_refuse_for_room(c);
        return bytes.len;
    }
    if (result == HTTP_PARSE_DONE) {
        deliver(c);
        return used;
    }
    if (result == HTTP_PARSE_CONTINUE)
        conn_send(c, STR("HTTP/1.1 100 Continue\r\n\r\n"), STR(""), STR(""));
    /* The headers have one deadline, which starts with their first byte. A body must keep
     * moving. */
    if (was_in_body)
        conn_body_moved(c, bytes.len);
    else if (was_idle || http_parser_in_body(c->parser))
        conn_arm_reading(c);
    if (http_parser_in_body(c->parser))
        places_hold(c);
    return used;
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct conn *c = h->data;
    /* TLS may return up to one record more than was received, and all bytes must fit in
     * c->pending. */
    const size_t most = sizeof c->server->read_buffer / (c->tls ? 2 : 1);
    /* Bytes sent ahead are kept, so a read is small unless the bytes belong to a body. */
    const uint64_t left = c->state == CONN_READING ? http_parser_left(c->parser) : 0;
    const size_t n = left >= most ? most : left > PENDING_MAX ? (size_t)left : PENDING_MAX;
    *buf = uv_buf_init(c->server->read_buffer, (unsigned)n);
}

static void process(struct conn *c)
{
    while (c->state == CONN_READING && c->pending.len > 0) {
        c->processing = true;
        size_t used = feed(c, strbuf_str(&c->pending));
        c->processing = false;
        strbuf_consume(&c->pending, used);
    }
    if (c->pending.len == 0 && c->pending.cap > HTTP_FREE_BYTES) {
        strbuf_fini(&c->pending);
        strbuf_init(&c->pending, PENDING_MAX + HTTP_READ_BUFFER);
    }
    if (c->state != CONN_LINGERING && c->state != CONN_CLOSING)
        conn_charge_kept(c);
    if (c->state == CONN_READING && c->read_stopped) {
        c->read_stopped = false;
        uv_read_start(&c->io.stream, on_alloc, on_read);
    }
}

/* Keeps bytes after an unanswered request, up to a bound. Beyond the bound reading stops and the
 * kernel's buffer fills up. */
static void keep_pending(struct conn *c, struct str bytes)
{
    strbuf_append_str(&c->pending, bytes);
    conn_charge_kept(c);
    if (c->pending.len >= PENDING_MAX) {
        c->read_stopped = true;
        uv_read_stop(&c->io.stream);
    }
}

static void on_eof(struct conn *c)
{
    if (c->state == CONN_FLUSHING)
        c->keep_alive = false; /* the client sends no more, but it may still read the answer */
    else
        conn_abort(c);
}

static void on_plain(struct conn *c, struct str bytes)
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

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (n == 0 || c->state == CONN_CLOSING)
        return;
    static const struct conn_taker taker = {on_plain, on_eof};
    struct str bytes = {buf->base, n > 0 ? (size_t)n : 0};
    if (n == UV_EOF)
        on_eof(c);
    else if (n < 0)
        conn_abort(c);
    else if (c->tls)
        conn_tls_on_bytes(c, bytes, &taker);
    else
        on_plain(c, bytes);
}

/* ---- a new connection ---- */

static int take_stream(struct http_server *s, struct conn *c, int fd)
{
    if (fd < 0)
        return uv_accept(&s->listener.stream, &c->io.stream);
    int rc = s->is_unix ? uv_pipe_open(&c->io.pipe, fd) : uv_tcp_open(&c->io.tcp, fd);
    if (rc != 0)
        close(fd);
    return rc;
}

void conn_refuse_place(struct conn *c)
{
    c->is_extra = true;
    c->server->n_extra++;
    places_stay(c);
    if (c->tls || c->server->n_extra > EXTRA_MAX)
        /* the number of refusals is bounded, and a TLS handshake costs too much for a refusal */
        conn_close(c);
    else
        conn_refuse(c, 503, "The server has too many connections. Try again in a moment");
}

struct conn *conn_accept(struct http_server *s, int fd)
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
        return NULL;
    }
    if (!s->is_unix)
        uv_tcp_nodelay(&c->io.tcp, 1);
    places_wait(c);
    conn_arm(c, s->limits.header_timeout_ms);
    return c;
}
