/* Relays a request to another HTTP server on 127.0.0.1. http_relay_start writes the request with
 * the client's headers; llhttp parses the answer. An answer with a Content-Length is collected
 * and sent at once, any other answer is streamed.
 * A relay is one TCP connection and is freed by on_closed, on the loop's thread. `request`
 * becomes NULL as soon as it is answered or the client is gone. Nothing is sent to it
 * afterwards. When the client's stream is full, reading pauses until http_relay_on_drain.
 * Headers are bounded by MAX_HEADER_BYTES, a collected body by MAX_WHOLE_BYTES. */
#include "common/http/handlers/relay.h"

#include <llhttp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/loop/loop.h"
#include "common/loop/uv.h"

enum { READ_BYTES = 32 << 10, MAX_HEADER_BYTES = 16 << 10, MAX_WHOLE_BYTES = 64 << 20 };

struct http_relay {
    struct http_request *request; /* request to answer; NULL = answered, or the client is gone */
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    struct strbuf asked; /* the request as sent to the other server */
    /* the header that is being read; the answer's type and body */
    struct strbuf name, value, type, body;
    uint32_t header_bytes;
    bool streaming, paused, complete;
    char buf[READ_BYTES];
};

/* ---- end of a relay ---- */

static void on_closed(uv_handle_t *h)
{
    struct http_relay *r = h->data;
    strbuf_fini(&r->asked);
    strbuf_fini(&r->name);
    strbuf_fini(&r->value);
    strbuf_fini(&r->type);
    strbuf_fini(&r->body);
    mem_free(r);
}

static void close_relay(struct http_relay *r)
{
    r->request = NULL;
    if (!uv_is_closing((uv_handle_t *)&r->tcp))
        uv_close((uv_handle_t *)&r->tcp, on_closed);
}

static void fail(struct http_relay *r, int status, const char *text)
{
    struct http_request *q = r->request;
    struct strbuf b;
    r->request = NULL;
    if (q && r->streaming) {
        http_drop(q);
    } else if (q) {
        strbuf_init(&b, 0);
        strbuf_printf(&b,
                      "{\n  \"code\": %d,\n  \"type\": \"WlmException\",\n  \"message\": ", status);
        strbuf_append_json(&b, str_from(text));
        strbuf_append_c(&b, "\n}\n");
        http_respond(q, status, "application/json", strbuf_str(&b), NULL, 0);
        strbuf_fini(&b);
    }
    close_relay(r);
}

/* ---- the answer ---- */

/* Returns true for headers of one connection and for headers that our server writes itself. */
static bool is_own_header(const char *name)
{
    static const char *const own[] = {"connection",
                                      "keep-alive",
                                      "transfer-encoding",
                                      "upgrade",
                                      "content-length",
                                      "trailer",
                                      "server",
                                      "date",
                                      "host",
                                      "expect",
                                      "te",
                                      "content-type"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(name, own[i]) == 0)
            return true;
    return false;
}

static int add_bounded(struct http_relay *r, struct strbuf *b, const char *at, size_t n)
{
    r->header_bytes += (uint32_t)n;
    if (r->header_bytes > MAX_HEADER_BYTES)
        return -1;
    strbuf_append(b, at, n);
    return 0;
}

static int on_name(llhttp_t *l, const char *at, size_t n)
{
    struct http_relay *r = l->data;
    return add_bounded(r, &r->name, at, n);
}

static int on_value(llhttp_t *l, const char *at, size_t n)
{
    struct http_relay *r = l->data;
    return add_bounded(r, &r->value, at, n);
}

static int on_value_complete(llhttp_t *l)
{
    struct http_relay *r = l->data;
    const char *name = strbuf_str(&r->name).ptr, *value = strbuf_str(&r->value).ptr;
    if (r->request && strcasecmp(name, "content-type") == 0) {
        strbuf_reset(&r->type);
        strbuf_append_c(&r->type, value);
    } else if (r->request && !is_own_header(name)) {
        http_add_header(r->request, name, value);
    }
    strbuf_reset(&r->name);
    strbuf_reset(&r->value);
    return 0;
}

static int on_headers_complete(llhttp_t *l)
{
    struct http_relay *r = l->data;
    /* the other server sent 100 Continue, although we did not request it */
    if (l->status_code < 200)
        return -1;
    if (l->flags & F_CONTENT_LENGTH)
        return l->content_length > MAX_WHOLE_BYTES ? -1 : 0;
    r->streaming = true;
    http_stream_begin(r->request, l->status_code, strbuf_str(&r->type).ptr, NULL, 0);
    return 0;
}

static int on_body(llhttp_t *l, const char *at, size_t n)
{
    struct http_relay *r = l->data;
    if (!r->streaming)
        strbuf_append(&r->body, at, n);
    else
        http_stream_write(r->request, (struct str){at, n});
    return 0;
}

static int on_complete(llhttp_t *l)
{
    struct http_relay *r = l->data;
    struct http_request *q = r->request;
    r->complete = true;
    r->request = NULL;
    if (r->streaming)
        http_stream_end(q);
    else
        http_respond(q, l->status_code, r->type.len ? strbuf_str(&r->type).ptr : NULL,
                     strbuf_str(&r->body), NULL, 0);
    return HPE_PAUSED; /* the bytes that follow belong to no answer */
}

static const llhttp_settings_t *settings(void)
{
    static llhttp_settings_t s;
    llhttp_settings_init(&s);
    s.on_header_field = on_name;
    s.on_header_value = on_value;
    s.on_header_value_complete = on_value_complete;
    s.on_headers_complete = on_headers_complete;
    s.on_body = on_body;
    s.on_message_complete = on_complete;
    return &s;
}

/* ---- the connection ---- */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct http_relay *r = h->data;
    *buf = uv_buf_init(r->buf, sizeof r->buf);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct http_relay *r = stream->data;
    if (n == 0)
        return;
    if (n > 0)
        (void)llhttp_execute(&r->parser, buf->base, (size_t)n);
    else if (n == UV_EOF)
        (void)llhttp_finish(&r->parser); /* the end of the connection may end the answer */
    if (r->complete) {
        close_relay(r);
    } else if (n < 0 || llhttp_get_errno(&r->parser) != HPE_OK) {
        fail(r, 502, "The process of the model sent an incomplete answer. Try again.");
    } else if (r->streaming && http_stream_room(r->request) == 0) {
        r->paused = true;
        uv_read_stop(stream);
    }
}

static void on_sent(uv_write_t *w, int rc)
{
    struct http_relay *r = w->handle->data;
    if (rc < 0 && rc != UV_ECANCELED && !r->complete && r->request)
        fail(r, 502,
             "The process of the model closed the connection before it answered. Try again.");
}

static void on_connected(uv_connect_t *c, int rc)
{
    struct http_relay *r = c->handle->data;
    if (rc == UV_ECANCELED || !r->request)
        return; /* the relay was closed meanwhile */
    if (rc < 0) {
        fail(r, 503,
             "The process of the model does not accept connections. Try again in a moment.");
        return;
    }
    uv_buf_t b = uv_buf_init(r->asked.ptr, (unsigned)r->asked.len);
    if (uv_write(&r->write, (uv_stream_t *)&r->tcp, &b, 1, on_sent) != 0 ||
        uv_read_start((uv_stream_t *)&r->tcp, on_alloc, on_read) != 0)
        fail(r, 502,
             "The process of the model closed the connection before it answered. Try again.");
}

static void write_request(struct http_relay *r, const struct http_relay_options *o)
{
    struct str name, value, body = http_body(o->request), query = http_query(o->request);
    strbuf_printf(&r->asked, "%s %s", o->method, o->path);
    if (query.len > 0) {
        strbuf_append_c(&r->asked, "?");
        strbuf_append_str(&r->asked, query);
    }
    strbuf_printf(&r->asked, " HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n", o->port);
    for (uint32_t i = 0; http_header_at(o->request, i, &name, &value); i++) {
        char plain[32];
        snprintf(plain, sizeof plain, STR_FMT, STR_ARG(name));
        if (is_own_header(plain) && strcasecmp(plain, "content-type") != 0)
            continue;
        if (strcasecmp(plain, "content-encoding") == 0)
            continue; /* the header is left out, because the body is already decoded */
        strbuf_append_str(&r->asked, name);
        strbuf_append_c(&r->asked, ": ");
        strbuf_append_str(&r->asked, value);
        strbuf_append_c(&r->asked, "\r\n");
    }
    strbuf_printf(&r->asked, "Content-Length: %zu\r\n\r\n", body.len);
    strbuf_append_str(&r->asked, body);
}

void http_relay_start(const struct http_relay_options *o)
{
    struct http_relay *r = mem_zalloc(sizeof *r);
    struct sockaddr_in to;
    r->request = o->request;
    strbuf_init(&r->asked, 0);
    strbuf_init(&r->name, 0);
    strbuf_init(&r->value, 0);
    strbuf_init(&r->type, 0);
    strbuf_init(&r->body, 0);
    llhttp_init(&r->parser, HTTP_RESPONSE, settings());
    r->parser.data = r;
    http_set_user(o->request, r);
    write_request(r, o);
    uv_tcp_init(loop_uv(o->loop), &r->tcp);
    r->tcp.data = r;
    uv_ip4_addr("127.0.0.1", o->port, &to);
    if (uv_tcp_connect(&r->connect, &r->tcp, (const struct sockaddr *)&to, on_connected) != 0)
        fail(r, 503,
             "The process of the model does not accept connections. Try again in a moment.");
}

void http_relay_on_drain(struct http_relay *r)
{
    if (!r->paused)
        return;
    r->paused = false;
    uv_read_start((uv_stream_t *)&r->tcp, on_alloc, on_read);
}

void http_relay_on_abort(struct http_relay *r)
{
    close_relay(r);
}
