/* Turns bytes into an HTTP request, with llhttp. A connection feeds bytes; llhttp calls back
 * with pieces of the headers and the body; http_parser_message gives the result.
 * The request line and the headers are collected in one buffer. Fields are stored as offsets
 * into it, because the buffer may move while it grows. make_message turns them into views when
 * the headers or the message are complete. Every buffer is bounded by the limits. After an error
 * the parser accepts no more bytes. */
#include "common/http/message/parser.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <llhttp.h>

#include "common/base/mem.h"

enum { CHUNK_NOISE_MAX = 64 << 10, KEEP_BYTES = 16 << 10, FIRST_FIELDS = 8 };

struct offsets {
    uint32_t name, name_len, value, value_len;
};

struct http_parser {
    llhttp_t llhttp;
    struct http_parser_limits limits;
    /* returns the most bytes of a body; NULL = bodies are read up to the limits */
    uint64_t (*on_head)(void *ctx);
    void *on_head_ctx;
    uint64_t max_body;           /* largest body of this message in bytes */
    uint64_t length, body_bytes; /* Content-Length (0 = none), and the body bytes received so far */
    struct strbuf head, body;
    uint32_t url_len;
    struct offsets *fields; /* [n_fields], as long as `message.fields` */
    uint32_t n_fields, cap_fields;
    bool begun, headers_done, in_value, expects_continue, complete;
    bool in_head, line_ended; /* state of is_folded over the bytes read so far */
    /* true = HTTP/1.0 with chunks, where a proxy may have read another length */
    bool is_suspect;
    /* bytes of chunk extensions and trailers, which are read and bounded but not kept */
    uint32_t noise_bytes;
    int error_status;
    char error_text[160];
    struct http_message message;
};

static int fail(struct http_parser *p, int status, const char *text)
{
    p->error_status = status;
    snprintf(p->error_text, sizeof p->error_text, "%s", text);
    return -1;
}

static int too_large(struct http_parser *p, uint64_t most)
{
    p->error_status = 413;
    snprintf(p->error_text, sizeof p->error_text,
             "The request body is larger than the limit of %llu bytes", (unsigned long long)most);
    return -1;
}

static int add_head(struct http_parser *p, const char *at, size_t n)
{
    if (p->head.len + n > p->limits.max_header_bytes)
        return fail(p, 431,
                    "The request line and headers are larger than this server allows. Send fewer "
                    "or shorter headers");
    strbuf_append(&p->head, at, n);
    return 0;
}

static int add_noise(struct http_parser *p, size_t n)
{
    p->noise_bytes += (uint32_t)n;
    return p->noise_bytes > CHUNK_NOISE_MAX ? fail(p, 400,
                                                   "The request has too many bytes of chunk "
                                                   "extensions or trailers. Send fewer of them")
                                            : 0;
}

static int on_begin(llhttp_t *l)
{
    ((struct http_parser *)l->data)->begun = true;
    return 0;
}

static int on_url(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = l->data;
    p->url_len += (uint32_t)n;
    if (p->url_len > HTTP_MAX_URL)
        return fail(p, 414, "The URL is longer than 8 KiB, the limit. Send a shorter one");
    return add_head(p, at, n);
}

/* Makes room for one more field. Most requests have a dozen, and a connection may be open for
 * hours. */
static void reserve_field(struct http_parser *p)
{
    if (p->n_fields < p->cap_fields)
        return;
    p->cap_fields = p->cap_fields ? 2 * p->cap_fields : FIRST_FIELDS;
    p->fields = mem_realloc(p->fields, p->cap_fields * sizeof *p->fields);
    p->message.fields = mem_realloc(p->message.fields, p->cap_fields * sizeof *p->message.fields);
}

static int on_field(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = l->data;
    if (p->headers_done)
        return add_noise(p, n);
    if (p->n_fields == 0 || p->in_value) {
        if (p->n_fields == HTTP_MAX_FIELDS)
            return fail(p, 431, "The request has more than 100 header fields. Send fewer of them");
        reserve_field(p);
        p->fields[p->n_fields++] = (struct offsets){.name = (uint32_t)p->head.len};
        p->in_value = false;
    }
    p->fields[p->n_fields - 1].name_len += (uint32_t)n;
    return add_head(p, at, n);
}

static int on_value(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = l->data;
    if (p->headers_done)
        return add_noise(p, n);
    struct offsets *f = &p->fields[p->n_fields - 1];
    if (!p->in_value) {
        f->value = (uint32_t)p->head.len;
        p->in_value = true;
    }
    f->value_len += (uint32_t)n;
    return add_head(p, at, n);
}

/* Removes blanks after a value, which do not belong to it (RFC 9112, 5.1). */
static int on_value_complete(llhttp_t *l)
{
    struct http_parser *p = l->data;
    if (p->headers_done)
        return 0;
    struct offsets *f = &p->fields[p->n_fields - 1];
    p->in_value = true; /* an empty value must set this too */
    while (f->value_len > 0 && strchr(" \t", p->head.ptr[f->value + f->value_len - 1]))
        f->value_len--;
    return f->name_len > 0 ? 0 : fail(p, 400, "Malformed HTTP request: a header field has no name");
}

static struct str field_value(const struct http_parser *p, const char *name, uint32_t *n_found)
{
    struct str found = {"", 0};
    size_t len = strlen(name);
    *n_found = 0;
    for (uint32_t i = 0; i < p->n_fields; i++) {
        const struct offsets *f = &p->fields[i];
        if (f->name_len != len || strncasecmp(p->head.ptr + f->name, name, len) != 0)
            continue;
        if ((*n_found)++ == 0)
            found = (struct str){p->head.ptr + f->value, f->value_len};
    }
    return found;
}

static void make_message(struct http_parser *p);

/* Calls the handler for the largest allowed body, before any of the body is kept or found too
 * large. Returns false when the body is not needed. The parser then does not wait for even a
 * short body, because that would keep bytes of an unauthenticated client. */
static bool takes_body(struct http_parser *p)
{
    if (!p->on_head || !(p->length > 0 || p->llhttp.flags & F_CHUNKED))
        return true;
    make_message(p);
    const uint64_t max = p->on_head(p->on_head_ctx);
    if (max > 0)
        p->max_body = max < p->limits.max_body_bytes ? max : p->limits.max_body_bytes;
    return max > 0;
}

static int on_headers_complete(llhttp_t *l)
{
    struct http_parser *p = l->data;
    uint32_t n;
    p->headers_done = true;
    if (l->method == HTTP_CONNECT)
        return fail(p, 405, "The method CONNECT is not supported: this server is not a proxy");
    l->upgrade = 0; /* a server may ignore an offer to upgrade (RFC 9110, 7.8) */
    if (l->http_major != 1 || l->http_minor > 1)
        return fail(p, 505, "This server accepts only HTTP/1.0 and HTTP/1.1");
    field_value(p, "host", &n);
    if (n > 1 || (n == 0 && l->http_minor == 1))
        return fail(p, 400, "The request must have exactly one Host header");
    struct str coding = field_value(p, "transfer-encoding", &n);
    p->is_suspect = n > 0 && l->http_minor == 0;
    if (n > 1 || (n == 1 && (coding.len != 7 || strncasecmp(coding.ptr, "chunked", 7) != 0)))
        return fail(p, 501, "This server accepts only the Transfer-Encoding chunked");
    struct str expect = field_value(p, "expect", &n);
    if (n && (expect.len != 12 || strncasecmp(expect.ptr, "100-continue", 12) != 0))
        return fail(p, 417, "This server accepts only Expect: 100-continue");
    p->length = l->flags & F_CONTENT_LENGTH ? l->content_length : 0;
    if (!takes_body(p)) {
        p->message.keep_alive = false;
        p->message.body_left = p->complete = true;
        return HPE_PAUSED;
    }
    if (l->flags & F_CONTENT_LENGTH && l->content_length > p->max_body)
        return too_large(p, p->max_body);
    p->expects_continue = n && l->http_minor == 1;
    return 0;
}

static int on_body(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = l->data;
    if (n > p->max_body - p->body_bytes)
        return too_large(p, p->max_body);
    p->body_bytes += n;
    strbuf_append(&p->body, at, n);
    return 0;
}

static int on_extension(llhttp_t *l, const char *at, size_t n)
{
    return add_noise(l->data, n);
}

static int on_chunk(llhttp_t *l)
{
    struct http_parser *p = l->data;
    if (l->content_length > p->limits.max_body_bytes - p->body_bytes)
        return too_large(p, p->limits.max_body_bytes);
    return 0;
}

/* Reduces "http://host/path", which a client may send to any server (RFC 9112, 3.2.2), to
 * "/path". Its host then replaces the Host header. */
static struct str origin_form(struct str url, struct str *authority)
{
    static const char scheme[] = "http://";
    const size_t begin = sizeof scheme - 1;
    size_t n = begin;
    if (url.len < n || strncasecmp(url.ptr, scheme, n) != 0)
        return url;
    while (n < url.len && url.ptr[n] != '/' && url.ptr[n] != '?')
        n++;
    *authority = (struct str){url.ptr + begin, n - begin};
    return n < url.len ? (struct str){url.ptr + n, url.len - n} : STR("/");
}

static void make_message(struct http_parser *p)
{
    struct http_message *m = &p->message;
    uint32_t n_hosts;
    m->authority = field_value(p, "host", &n_hosts);
    struct str url =
        origin_form((struct str){p->head.ptr ? p->head.ptr : "", p->url_len}, &m->authority);
    const char *q = memchr(url.ptr, '?', url.len);
    m->method = str_from(llhttp_method_name((llhttp_method_t)p->llhttp.method));
    m->path = (struct str){url.ptr, q ? (size_t)(q - url.ptr) : url.len};
    m->query = q ? (struct str){q + 1, url.len - m->path.len - 1} : (struct str){"", 0};
    m->body = strbuf_str(&p->body);
    m->is_http10 = p->llhttp.http_minor == 0;
    m->is_head = p->llhttp.method == HTTP_HEAD;
    m->keep_alive = llhttp_should_keep_alive(&p->llhttp) && !p->is_suspect;
    m->body_left = false;
    m->n_fields = p->n_fields;
    for (uint32_t i = 0; i < p->n_fields; i++) {
        const struct offsets *f = &p->fields[i];
        m->fields[i].name = (struct str){p->head.ptr + f->name, f->name_len};
        m->fields[i].value = (struct str){p->head.ptr + f->value, f->value_len};
    }
}

static int on_complete(llhttp_t *l)
{
    struct http_parser *p = l->data;
    make_message(p);
    p->complete = true;
    return HPE_PAUSED; /* the next request is read only after this request is answered */
}

static const llhttp_settings_t settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
    .on_chunk_header = on_chunk,
    .on_message_complete = on_complete,
};

struct http_parser *http_parser_new(const struct http_parser_limits *limits)
{
    struct http_parser *p = mem_zalloc(sizeof *p);
    p->limits = *limits;
    strbuf_init(&p->head, limits->max_header_bytes);
    strbuf_init(&p->body, limits->max_body_bytes);
    http_parser_reset(p);
    return p;
}

void http_parser_on_head(struct http_parser *p, uint64_t (*fn)(void *ctx), void *ctx)
{
    p->on_head = fn;
    p->on_head_ctx = ctx;
}

void http_parser_free(struct http_parser *p)
{
    if (!p)
        return;
    strbuf_fini(&p->head);
    strbuf_fini(&p->body);
    mem_free(p->fields);
    mem_free(p->message.fields);
    mem_free(p);
}

/* Empties a buffer and frees it when it was large. Otherwise the buffer would stay that large
 * for the life of the connection, and the accounts count only its bytes. */
static void forget(struct strbuf *b, size_t max)
{
    if (b->cap > KEEP_BYTES) {
        strbuf_fini(b);
        strbuf_init(b, max);
    }
    strbuf_reset(b);
}

void http_parser_reset(struct http_parser *p)
{
    llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
    p->llhttp.data = p;
    forget(&p->head, p->limits.max_header_bytes);
    forget(&p->body, p->limits.max_body_bytes);
    p->max_body = p->limits.max_body_bytes;
    p->length = p->body_bytes = 0;
    p->url_len = p->n_fields = p->noise_bytes = 0;
    p->begun = p->headers_done = p->in_value = p->expects_continue = p->complete = false;
    p->in_head = p->line_ended = p->is_suspect = false;
    p->error_status = 0;
    p->error_text[0] = '\0';
}

/* Returns true when a line of the headers begins with a blank. llhttp takes such obsolete
 * folding as part of the value before it, and other parsers take it as a header of its own (RFC
 * 9112, 5.2). The function reads no byte after the headers. */
static bool is_folded(struct http_parser *p, struct str bytes)
{
    const char *at = bytes.ptr, *end = bytes.ptr + bytes.len;
    while (!p->in_head && at < end && (*at == '\r' || *at == '\n'))
        at++; /* empty lines before a request are not part of its headers */
    p->in_head = p->in_head || at < end;
    while (at < end) {
        if (p->line_ended && (*at == ' ' || *at == '\t'))
            return true;
        if (p->line_ended && (*at == '\r' || *at == '\n'))
            return false; /* the headers end here or are malformed */
        at = memchr(at, '\n', (size_t)(end - at));
        p->line_ended = at != NULL;
        at = at ? at + 1 : end;
    }
    return false;
}

enum http_parse http_parser_feed(struct http_parser *p, struct str bytes, size_t *used)
{
    *used = bytes.len;
    if (p->error_status)
        return HTTP_PARSE_ERROR;
    if (!p->headers_done && is_folded(p, bytes)) {
        fail(p, 400,
             "Malformed HTTP request: a header field spans several lines, which is obsolete (RFC "
             "9112, 5.2). Send each field in one line");
        return HTTP_PARSE_ERROR;
    }
    llhttp_errno_t rc = llhttp_execute(&p->llhttp, bytes.ptr, bytes.len);
    if (p->complete) {
        *used = (size_t)(llhttp_get_error_pos(&p->llhttp) - bytes.ptr);
        return HTTP_PARSE_DONE;
    }
    if (rc != HPE_OK) {
        if (!p->error_status) {
            fail(p, rc == HPE_INVALID_VERSION ? 505 : 400, "");
            snprintf(p->error_text, sizeof p->error_text, "Malformed HTTP request: %s",
                     llhttp_get_error_reason(&p->llhttp));
        }
        return HTTP_PARSE_ERROR;
    }
    if (p->expects_continue && p->body_bytes == 0) {
        p->expects_continue = false;
        return HTTP_PARSE_CONTINUE;
    }
    return HTTP_PARSE_MORE;
}

bool http_parser_idle(const struct http_parser *p)
{
    return !p->begun;
}

bool http_parser_in_body(const struct http_parser *p)
{
    return p->headers_done;
}

char *http_parser_take_body(struct http_parser *p)
{
    char *owned = p->body.ptr;
    strbuf_init(&p->body, p->limits.max_body_bytes);
    p->message.body = (struct str){"", 0};
    return owned;
}

uint64_t http_parser_max_body(const struct http_parser *p)
{
    return p->max_body;
}

uint64_t http_parser_announced(const struct http_parser *p)
{
    return p->length;
}

uint64_t http_parser_left(const struct http_parser *p)
{
    return p->length > p->body_bytes ? p->length - p->body_bytes : 0;
}

uint64_t http_parser_held_bytes(const struct http_parser *p)
{
    return p->body.len;
}

uint64_t http_parser_head_bytes(const struct http_parser *p)
{
    return p->head.len;
}

const struct http_message *http_parser_message(const struct http_parser *p)
{
    return &p->message;
}

int http_parser_error_status(const struct http_parser *p)
{
    return p->error_status;
}

const char *http_parser_error_text(const struct http_parser *p)
{
    return p->error_text;
}

bool http_field_is(const struct http_field *f, const char *name)
{
    size_t len = strlen(name);
    return f->name.len == len && strncasecmp(f->name.ptr, name, len) == 0;
}
