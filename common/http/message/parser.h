#pragma once
/* One HTTP/1.x request out of bytes, by llhttp in its strict mode. No I/O: the connection feeds it,
 * and so does the fuzz target. Everything a client can make grow is bounded by the limits. After
 * HTTP_PARSE_DONE the message's views are valid until http_parser_reset. No llhttp type leaves
 * parser.c. */
#include "common/base/str.h"

#define HTTP_MAX_FIELDS 100u
#define HTTP_MAX_URL    8192u /* bytes: ours have some hundred */

enum http_parse {
    HTTP_PARSE_MORE,     /* all bytes were taken; the request is not whole yet */
    HTTP_PARSE_CONTINUE, /* as MORE, and the client waits for "100 Continue" */
    HTTP_PARSE_DONE,     /* the request is whole; *used bytes belong to it */
    HTTP_PARSE_ERROR     /* answer error_status and close */
};

struct http_field {
    struct str name, value;
};

bool http_field_is(const struct http_field *f, const char *name); /* name: of any case */

struct http_message {
    struct str method, path, query, body;
    struct str authority; /* whom the request is for: the target's host, else Host; "": unsaid */
    struct http_field fields[HTTP_MAX_FIELDS];
    uint32_t n_fields;
    bool is_http10, keep_alive, is_head;
    bool body_left; /* its body was not wanted, and is still to come: keep_alive is false */
};

struct http_parser_limits {
    uint32_t max_header_bytes;
    uint64_t max_body_bytes;
};

/* Bodies of more bytes have a room of their own, which they ask for at their head. */
enum { HTTP_SMALL_BODY_BYTES = 64 << 10 };

struct http_parser;
struct http_parser *http_parser_new(const struct http_parser_limits *limits);
/* fn is asked when a head is complete and a body follows, with http_parser_message, which has no
 * body yet: how many bytes the body may have, within the limits. 0: nobody reads it. Then the
 * message is whole without it. */
void http_parser_on_head(struct http_parser *p, uint64_t (*fn)(void *ctx), void *ctx);
void http_parser_free(struct http_parser *p);
void http_parser_reset(struct http_parser *p); /* for the next request of the connection */
enum http_parse http_parser_feed(struct http_parser *p, struct str bytes, size_t *used);
bool http_parser_idle(const struct http_parser *p);    /* nothing of a request has come yet */
bool http_parser_in_body(const struct http_parser *p); /* headers are complete */
/* The message's body, to be freed with mem_free; it has none then. NULL: it had none. */
char *http_parser_take_body(struct http_parser *p);
uint64_t http_parser_max_body(const struct http_parser *p); /* bytes that this message's may have */
/* Bytes that Content-Length says, once the head is there; 0: it says none. */
uint64_t http_parser_announced(const struct http_parser *p);
uint64_t http_parser_left(const struct http_parser *p);       /* of them, what has not come */
uint64_t http_parser_held_bytes(const struct http_parser *p); /* of the body */
uint64_t http_parser_head_bytes(const struct http_parser *p);
const struct http_message *http_parser_message(const struct http_parser *p);
int http_parser_error_status(const struct http_parser *p);
const char *http_parser_error_text(const struct http_parser *p);
