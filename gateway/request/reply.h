#pragma once
/* `reply_ops` is the interface through which an answer is sent: to a client's connection, a line
 * of a batch, or a test. */
#include "gateway/prepare/dialect.h"

struct api_request;

/* `reply_ops` holds functions of the receiver of an answer: the HTTP server, a batch or a test.
 * `reply` is opaque. A reply is invalid after respond, end, drop, or serving_on_abort. */
struct reply_ops {
    /* stores in the reply the request that it belongs to */
    void (*attach)(void *reply, struct api_request *r);
    void (*respond)(void *reply, int http_status, struct str json, uint32_t retry_after_s);
    void (*begin)(void *reply, const char *content_type); /* starts a stream with status 200 */
    size_t (*room)(void *reply);
    void (*write)(void *reply, struct str chunk);
    void (*end)(void *reply);
    /* Drops the connection because the model took too long. `begun` is true when `begin` was
     * called before. */
    void (*drop)(void *reply, bool begun);
    /* Adds a header to the answer, before `respond` or `begin`. NULL = the receiver has no
     * headers. */
    void (*add_header)(void *reply, const char *name, const char *value);
    /* Gives the bytes of `serving_request.body` to the caller, who frees them with mem_free.
     * NULL = the caller must copy them. */
    char *(*take_body)(void *reply);
    /* Reports to the receiver that `serving_request.body` is no longer needed. NULL = the body
     * has no cost. */
    void (*release_body)(void *reply);
    /* Reserves `bytes` beside the body until the request is answered. Returns STATUS_AGAIN when
     * the tenant's share is used up now. Returns STATUS_LIMIT when the bytes exceed the largest
     * possible share. The request must be refused then. NULL = the memory is not counted. */
    enum status (*hold)(void *reply, uint64_t bytes);
};

/* Appends the error's JSON and returns its HTTP status. `d` is NULL for OpenAI's form. */
int reply_error_body(struct strbuf *out, const struct dialect *d, const struct api_error *e);
/* Sends the error as the answer, with retry-after from `e`. `d` is NULL for OpenAI's form. */
void reply_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                 const struct api_error *e);
