#pragma once
/* Parses one HTTP/1.x request from bytes, with llhttp in its strict mode. The parser does no
 * I/O: a connection or the fuzz target feeds it. The limits bound everything that a client can
 * make grow. After HTTP_PARSE_DONE the message's views are valid until http_parser_reset. No
 * llhttp type leaves parser.c. */
#include "common/base/str.h"

#define HTTP_MAX_FIELDS 100u
#define HTTP_MAX_URL    8192u /* most bytes of a URL; our own URLs have a few hundred */

enum http_parse {
    HTTP_PARSE_MORE,     /* all bytes were used; the request is incomplete */
    HTTP_PARSE_CONTINUE, /* same as HTTP_PARSE_MORE, but the client waits for "100 Continue" */
    HTTP_PARSE_DONE,     /* the request is complete; *used bytes belong to it */
    HTTP_PARSE_ERROR     /* the caller must answer error_status and close the connection */
};

struct http_field {
    struct str name, value;
};

/* Compares the name of a header field and ignores case. */
bool http_field_is(const struct http_field *f, const char *name);

struct http_message {
    struct str method, path, query, body;
    struct str authority; /* requested host: that of the target, else the Host header; "" = none */
    struct http_field *fields; /* [n_fields], at most HTTP_MAX_FIELDS */
    uint32_t n_fields;
    bool is_http10, keep_alive, is_head;
    bool body_left; /* true = the body is refused but still arrives; keep_alive is false */
};

struct http_parser_limits {
    uint32_t max_header_bytes;
    uint64_t max_body_bytes;
};

/* HTTP_SMALL_BODY_BYTES is the most bytes of a small body. A larger body has a separate memory
 * budget, which the connection charges when the headers are complete. */
enum { HTTP_SMALL_BODY_BYTES = 64 << 10 };

struct http_parser;
struct http_parser *http_parser_new(const struct http_parser_limits *limits);
/* Sets the function that is called when the headers are complete and a body follows.
 * http_parser_message then has no body yet. `fn` returns the most bytes that the body may have,
 * within the limits. 0 means that the body is not needed; the message then ends without it. */
void http_parser_on_head(struct http_parser *p, uint64_t (*fn)(void *ctx), void *ctx);
void http_parser_free(struct http_parser *p);
/* Prepares the parser for the connection's next request. */
void http_parser_reset(struct http_parser *p);
enum http_parse http_parser_feed(struct http_parser *p, struct str bytes, size_t *used);
/* Returns true when no byte of a request has arrived yet. */
bool http_parser_idle(const struct http_parser *p);
/* returns true when the headers are complete */
bool http_parser_in_body(const struct http_parser *p);
/* Gives the message's body to the caller, who frees it with mem_free. The message then has no
 * body. Returns NULL when the message has no body. */
char *http_parser_take_body(struct http_parser *p);
/* Returns the most bytes that this message's body may have. */
uint64_t http_parser_max_body(const struct http_parser *p);
/* Returns Content-Length, once the headers are complete; 0 when there is no such header. */
uint64_t http_parser_announced(const struct http_parser *p);
/* Returns the bytes of the body that have not arrived yet. */
uint64_t http_parser_left(const struct http_parser *p);
/* Returns the bytes of the message's body that the parser holds. */
uint64_t http_parser_held_bytes(const struct http_parser *p);
uint64_t http_parser_head_bytes(const struct http_parser *p);
const struct http_message *http_parser_message(const struct http_parser *p);
int http_parser_error_status(const struct http_parser *p);
const char *http_parser_error_text(const struct http_parser *p);
