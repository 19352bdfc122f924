/* Fuzzes the HTTP parser with arbitrary bytes in arbitrary pieces (the first byte seeds the
 * cuts). Accepted messages must be consistent: their views must be inside the message and must
 * not depend on the pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/http/message/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum http_parse parse(struct http_parser *p, const uint8_t *data, size_t size, size_t piece)
{
    enum http_parse r = HTTP_PARSE_MORE;
    for (size_t at = 0; at < size;) {
        size_t n = size - at < piece ? size - at : piece, used = 0;
        r = http_parser_feed(p, (struct str){(const char *)data + at, n}, &used);
        if (used > n)
            abort();
        at += used;
        if (r == HTTP_PARSE_DONE || r == HTTP_PARSE_ERROR)
            break;
    }
    return r;
}

static void compare(const struct http_message *a, const struct http_message *b)
{
    if (!str_eq(a->method, b->method) || !str_eq(a->path, b->path) || !str_eq(a->query, b->query) ||
        !str_eq(a->body, b->body) || !str_eq(a->authority, b->authority) ||
        a->keep_alive != b->keep_alive || a->n_fields != b->n_fields)
        abort();
    for (uint32_t i = 0; i < a->n_fields; i++)
        if (!str_eq(a->fields[i].name, b->fields[i].name) ||
            !str_eq(a->fields[i].value, b->fields[i].value))
            abort();
}

/* Checks what handlers rely on: every field has a name, and no field contains a newline. */
static void check_fields(const struct http_message *m)
{
    for (uint32_t i = 0; i < m->n_fields; i++) {
        const struct str name = m->fields[i].name, value = m->fields[i].value;
        if (name.len == 0 || memchr(name.ptr, ' ', name.len) ||
            memchr(value.ptr, '\n', value.len) || memchr(value.ptr, '\r', value.len) ||
            memchr(value.ptr, '\0', value.len))
            abort();
        if (value.len > 0 && (value.ptr[value.len - 1] == ' ' || value.ptr[value.len - 1] == '\t'))
            abort();
    }
}

/* Limits bodies as a handler would, or not at all. */
static uint64_t body_max(void *ctx)
{
    return *(const uint64_t *)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct http_parser_limits limits = {4096, 65536};
    struct http_parser *whole = http_parser_new(&limits), *cut = http_parser_new(&limits);
    uint64_t most = data[0] % 3u == 0 ? UINT64_MAX : data[0] % 3u == 1 ? 100 : 0;
    http_parser_on_head(whole, body_max, &most);
    http_parser_on_head(cut, body_max, &most);
    enum http_parse a = parse(whole, data + 1, size - 1, size);
    enum http_parse b = parse(cut, data + 1, size - 1, 1u + data[0] % 7u);
    if ((a == HTTP_PARSE_DONE) != (b == HTTP_PARSE_DONE))
        abort();
    if (a == HTTP_PARSE_DONE) {
        compare(http_parser_message(whole), http_parser_message(cut));
        check_fields(http_parser_message(whole));
    }
    if (a == HTTP_PARSE_ERROR &&
        (http_parser_error_status(whole) < 400 || http_parser_error_status(whole) > 599))
        abort();
    http_parser_free(whole);
    http_parser_free(cut);
    return 0;
}
