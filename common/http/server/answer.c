/* Sends the answers of a handler: headers, whole bodies and streams. Bytes of a stream wait in
 * conn/gather.c until the end of the turn. A whole body over 64 KiB must fit in the budget
 * `answers`, which counts the bytes that wait for their readers. A stream may always have 16 KiB
 * waiting, and more while the budget allows it. */
#include "common/http/server/answer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/http/conn/address.h"
#include "common/http/conn/charge.h"
#include "common/http/conn/gather.h"
#include "common/http/conn/head.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/output.h"
#include "common/http/server/conn.h"

static void append_extra(struct strbuf *b, const struct http_header_kv *extra, size_t n_extra)
{
    for (size_t i = 0; i < n_extra; i++)
        if (!strpbrk(extra[i].name, "\r\n") && !strpbrk(extra[i].value, "\r\n"))
            strbuf_printf(b, "%s: %s\r\n", extra[i].name, extra[i].value);
}

bool http_answer_has_room(struct http_request *r)
{
    struct conn *c = conn_of(r);
    return room_is_wide(&c->server->answers, HTTP_SMALL_BODY_BYTES) ||
           room_has(&c->server->answers, conn_tenant(c), HTTP_SMALL_BODY_BYTES);
}

#define NO_ROOM                                                                                    \
    "{\"error\":{\"message\":\"The server cannot answer now: answers that clients have not read "  \
    "yet, yours or those of all clients, use all the memory for answers. Read them, then try "     \
    "again\",\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}"

/* Returns false when the tenant's share is full of answers that wait for their readers, because
 * this answer would wait as well. */
static bool may_wait(struct conn *c, struct str body)
{
    return body.len <= HTTP_SMALL_BODY_BYTES || http_parser_message(c->parser)->is_head ||
           room_has(&c->server->answers, conn_tenant(c), body.len);
}

void http_respond(struct http_request *r, int status, const char *content_type, struct str body,
                  const struct http_header_kv *extra, size_t n_extra)
{
    static const struct http_header_kv retry = {"Retry-After", "1"};
    struct conn *c = conn_of(r);
    assert(c->state == CONN_WAITING);
    struct strbuf head;
    if (!may_wait(c, body)) {
        c->server->counts.refused_answers++;
        http_respond(r, 503, "application/json", STR(NO_ROOM), &retry, 1);
        return;
    }
    strbuf_init(&head, 0);
    c->keep_alive = c->keep_alive && !c->server->draining;
    conn_append_head(c, &head, status, content_type);
    strbuf_append_str(&head, strbuf_str(&c->added));
    append_extra(&head, extra, n_extra);
    if (status != 204 && status != 304)
        strbuf_printf(&head, "Content-Length: %zu\r\n", body.len);
    strbuf_append_c(&head, "\r\n");
    bool silent = http_parser_message(c->parser)->is_head || status == 204 || status == 304;
    c->answered.status = status;
    c->answered.body_bytes = silent ? 0 : body.len;
    conn_enter(c, CONN_FLUSHING);
    conn_send(c, strbuf_str(&head), silent ? STR("") : body, STR(""));
    strbuf_fini(&head);
    conn_tell_answered(c, false);
}

/* Begins a stream. `framing` is the header that says where the body ends. */
static void begin(struct conn *c, int status, const char *content_type, const char *framing,
                  const struct http_header_kv *extra, size_t n_extra)
{
    struct strbuf head;
    strbuf_init(&head, 0);
    assert(c->state == CONN_WAITING);
    c->answered.status = status;
    conn_append_head(c, &head, status, content_type);
    strbuf_append_str(&head, strbuf_str(&c->added));
    append_extra(&head, extra, n_extra);
    strbuf_append_c(&head, framing);
    strbuf_append_c(&head, "\r\n");
    conn_enter(c, CONN_STREAMING);
    gather_add(c, strbuf_str(&head));
    strbuf_fini(&head);
}

void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       const struct http_header_kv *extra, size_t n_extra)
{
    struct conn *c = conn_of(r);
    c->chunked = !http_parser_message(c->parser)->is_http10;
    c->keep_alive = c->keep_alive && c->chunked && !c->server->draining;
    begin(c, status, content_type, c->chunked ? "Transfer-Encoding: chunked\r\n" : "", extra,
          n_extra);
}

void http_stream_begin_sized(struct http_request *r, int status, const char *content_type,
                             uint64_t length)
{
    struct conn *c = conn_of(r);
    char framing[64];
    snprintf(framing, sizeof framing, "Content-Length: %llu\r\n", (unsigned long long)length);
    c->chunked = false;
    c->keep_alive = c->keep_alive && !c->server->draining;
    begin(c, status, content_type, framing, NULL, 0);
}

/* Returns the bytes that may wait for this stream's reader. A few may always wait, and more
 * while the tenant's share allows it. */
static uint64_t most_waiting(struct conn *c)
{
    const uint64_t high = c->server->limits.stream_high_water_bytes;
    const struct room *answers = &c->server->answers;
    if (room_is_wide(answers, high))
        return high;
    const uint64_t share = c->answer.bytes + room_left(answers, conn_tenant(c));
    const uint64_t most = share < high ? share : high;
    return most > HTTP_SMALL_ANSWER_BYTES ? most : HTTP_SMALL_ANSWER_BYTES;
}

size_t http_stream_room(const struct http_request *r)
{
    struct conn *c = conn_of(r);
    if (c->state != CONN_STREAMING)
        return 0;
    const uint64_t held = c->queued_bytes + c->gathered_bytes, most = most_waiting(c);
    if (held > most / 2)
        c->wants_drain = true; /* the caller may find the result too small and wait for on_drain */
    return held < most ? (size_t)(most - held) : 0;
}

/* Writes the line with a chunk's size, such as "1f\r\n". */
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
    conn_charge_answer(c);
}

void http_stream_end(struct http_request *r)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_STREAMING);
    bool bare = !c->chunked || http_parser_message(c->parser)->is_head;
    conn_enter(c, CONN_FLUSHING);
    conn_tell_answered(c, false);
    if (!bare)
        gather_add(c, STR("0\r\n\r\n"));
    else if (c->queued_bytes + c->gathered_bytes == 0)
        conn_after_flush(c);
}

void http_drop(struct http_request *r)
{
    struct conn *c = conn_of(r);
    assert(c->state == CONN_WAITING || c->state == CONN_STREAMING);
    conn_close(c);
    conn_tell_answered(c, true);
}
