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
#include "common/http/message/content_coding.h"
#include "common/http/server/state.h"
#include "common/tls/session.h"

enum { LINGER_MS = 2000, LINGER_BYTES = 64 << 20, PENDING_MAX = 16 << 10, EXTRA_MAX = 128 };

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

void conn_enter(struct conn *c, enum conn_state next)
{
    assert(conn_next[c->state] & 1u << next);
    c->state = next;
    if (next == CONN_READING || (next == CONN_LINGERING && !c->is_extra))
        places_wait(c);
    else if (next == CONN_FLUSHING && c->queued_bytes > 0)
        places_hold(c); /* most answers are out at once; others enter when they are looked at */
    else
        places_stay(c);
}

/* ---- end ---- */

void conn_forget_decoded(struct conn *c)
{
    mem_free((void *)c->decoded.ptr);
    c->decoded = (struct str){0};
}

void conn_release(struct conn *c)
{
    if (--c->open_handles > 0)
        return;
    conn_forget_decoded(c);
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

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->tls && !c->cut)
        conn_tls_goodbye(c);
    conn_enter(c, CONN_CLOSING);
    if (c->decoding)
        (void)uv_cancel((uv_req_t *)c->decoding); /* where it has not begun */
    conn_release_rooms(c);
    room_set(&c->server->answers, &c->answer, 0, 0);
    gather_drop(c);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->server->n_conns--;
    c->server->n_extra -= c->is_extra;
    /* A reader that stands still would have the kernel keep what it was sent as well. */
    if (!c->reset || c->server->is_unix || uv_tcp_close_reset(&c->io.tcp, on_closed) != 0)
        uv_close(&c->io.handle, on_closed);
    uv_close((uv_handle_t *)&c->deadline, on_closed);
}

void conn_tell_answered(struct conn *c, bool aborted)
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
        conn_tell_answered(c, true);
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
    conn_charge_answer(c);
    if (c->queued_bytes == 0 && c->state == CONN_STREAMING)
        uv_timer_stop(&c->deadline); /* a stream that has nothing to say is not slow */
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
        conn_arm_writing(c);
    c->queued_bytes += n;
    c->sent_bytes += n;
    /* A refused write comes back through on_written as well, on the next turn: never from here, so
     * that a handler is not told of an abort inside its own call. */
    int rc = uv_write(&w->req, &c->io.stream, &buf, 1, on_written);
    if (rc == 0) {
        conn_charge_answer(c);
        return true;
    }
    c->queued_bytes -= n;
    mem_free(w);
    conn_abort_soon(c);
    return false;
}

bool conn_send(struct conn *c, struct str a, struct str b, struct str d)
{
    return c->tls ? conn_tls_send(c, a, b, d) : conn_send_plain(c, a, b, d);
}

void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n)
{
    size_t done = 0;
    if (c->queued_bytes == 0 && !c->tls) {
        int rc = uv_try_write(&c->io.stream, pieces, n);
        done = rc > 0 ? (size_t)rc : 0; /* an error comes again, from uv_write */
        c->sent_bytes += done;
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t k = done < pieces[i].len ? done : pieces[i].len;
        done -= k;
        if (k < pieces[i].len)
            conn_send(c, (struct str){pieces[i].base + k, pieces[i].len - k}, STR(""), STR(""));
    }
}

void conn_flushed(struct conn *c)
{
    conn_charge_answer(c);
    if (c->gathered_bytes == 0)
        go_on(c);
}

/* ---- errors of our own ---- */

/* As in vLLM and in the gateway's own answers (gateway/base/api_error.c). */
static const char *error_type(int status)
{
    return status < 500    ? "BadRequestError"
           : status == 501 ? "NotImplementedError"
           : status == 503 ? "ServiceUnavailableError"
                           : "InternalServerError";
}

void conn_linger(struct conn *c)
{
    conn_enter(c, CONN_LINGERING);
    conn_release_rooms(c);
    c->linger_left = LINGER_BYTES;
    conn_arm(c, LINGER_MS);
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
    conn_append_head(c, &head, status, "application/json");
    if (status == 503)
        strbuf_append_c(&head, "Retry-After: 1\r\n");
    if (status == 415)
        strbuf_append_c(&head, "Accept-Encoding: " CONTENT_CODINGS "\r\n");
    strbuf_printf(&head, "Content-Length: %zu\r\n\r\n", body.len);
    conn_send(c, strbuf_str(&head), strbuf_str(&body), STR(""));
    strbuf_fini(&body);
    strbuf_fini(&head);
    conn_linger(c);
    if (c->tls)
        conn_tls_goodbye(c);
}

/* ---- reading ---- */

/* A body that has no room is refused before it is sent. */
static uint64_t on_head(void *ctx)
{
    struct conn *c = ctx;
    const struct http_handlers *h = &c->server->handlers;
    const uint64_t max = h->body_max ? h->body_max(h->ctx, &c->request) : UINT64_MAX;
    const uint64_t announced = http_parser_announced(c->parser);
    if (announced > max || announced > c->server->limits.max_body_bytes)
        return max; /* which is refused as too large, or by the handler */
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

void conn_decoded(struct conn *c, struct str owned_body)
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
    c->id[0] = '\0';
    c->answered = (struct http_answered){.status = 499};
    c->arrived_ns = clock_mono_ns();
    strbuf_reset(&c->added);
    uv_timer_stop(&c->deadline);
    if (!conn_decode(c))
        hand_over(c);
    else if (c->state == CONN_READING)
        conn_enter(c, CONN_DECODING);
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
    /* The header's deadline runs from its first byte; the body has to move. */
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
    /* One record more than comes in may come out of TLS, and all of it has to fit in c->pending. */
    const size_t most = sizeof c->server->read_buffer / (c->tls ? 2 : 1);
    /* Bytes sent ahead are kept: little is read where it may not be a body's. */
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

/* Bytes behind an unanswered request: kept up to a bound, then the socket fills up instead. */
static void keep_pending(struct conn *c, struct str bytes)
{
    strbuf_append_str(&c->pending, bytes);
    conn_charge_kept(c);
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

static uint64_t number_of_address(struct conn *c)
{
    struct sockaddr_storage a = {0};
    int n = sizeof a;
    if (c->server->is_unix || uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)&a, &n) != 0)
        return 1;
    return places_address(&a, c->server->address_seed);
}

uint64_t conn_address(struct conn *c)
{
    if (!c->address)
        c->address = number_of_address(c);
    return c->address;
}

uint64_t conn_tenant(struct conn *c)
{
    return c->tenant ? c->tenant : conn_address(c);
}

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
        conn_close(c); /* refusals are bounded, and a handshake costs more than one is worth */
    else
        conn_refuse(c, 503, "Too many connections; try again in a moment");
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
