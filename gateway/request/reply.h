#pragma once
/* How an answer leaves, whoever takes it: a client's connection, a line of a batch, or a test. */
#include "gateway/prepare/dialect.h"

struct api_request;

/* How an answer leaves: the HTTP server's functions, or a test's. reply is opaque; it is dead after
 * respond, end, drop, or serving_on_abort. */
struct reply_ops {
    void (*attach)(void *reply, struct api_request *r); /* whose reply it is */
    void (*respond)(void *reply, int http_status, struct str json, uint32_t retry_after_s);
    void (*begin)(void *reply, const char *content_type); /* 200, a stream */
    size_t (*room)(void *reply);
    void (*write)(void *reply, struct str chunk);
    void (*end)(void *reply);
    /* The model took too long. begun: begin was called. */
    void (*drop)(void *reply, bool begun);
    /* On whatever comes of it, before respond and begin. NULL: there are no headers. */
    void (*add_header)(void *reply, const char *name, const char *value);
    /* The bytes of serving_request.body become the caller's, to be freed with mem_free. NULL: they
     * are copied where they have to stay. */
    char *(*take_body)(void *reply);
    /* Nobody reads serving_request.body any more. NULL: it costs nobody anything. */
    void (*release_body)(void *reply);
    /* The request holds so many bytes beside its body until it is answered. STATUS_AGAIN: its
     * tenant has no room for them now, STATUS_LIMIT: it never has; it is to be refused. NULL:
     * nobody counts. */
    enum status (*hold)(void *reply, uint64_t bytes);
};

/* Appends the error's JSON; returns its status. d NULL: as OpenAI's. */
int reply_error_body(struct strbuf *out, const struct dialect *d, const struct api_error *e);
/* The error as an answer. retry-after comes from e; d NULL: as OpenAI's. */
void reply_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                 const struct api_error *e);
