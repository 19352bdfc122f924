#pragma once
/* /v1/files, as OpenAI's: each call is a job of the store's own thread, and its answer is written
 * on the loop when the job is done. Loop thread only. */
#include "gateway/state_store.h"

struct http_request;
struct loop;
struct state_calls;

/* dir NULL: there is no store, and every call is told so. */
MUST_USE enum status state_calls_new(struct loop *l, const char *dir, uint64_t max_bytes,
                                     uint64_t (*wall_s)(void *ctx), struct state_calls **out,
                                     struct error *err);
/* After the HTTP server was closed. NULL is fine. */
void state_calls_free(struct state_calls *c);
void state_calls_on_request(struct state_calls *c, struct http_request *r, uint64_t tenant);
/* The client is gone. False: it was no call of these. */
bool state_calls_on_abort(struct state_calls *c, const struct http_request *r);
