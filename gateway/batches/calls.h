#pragma once
/* /v1/files and /v1/batches in OpenAI's form. Each call is a job of the store's thread; its
 * answer is written on the loop when the job is done. Loop thread only. */
#include "gateway/batches/store/store.h"

struct http_request;
struct loop;
struct metrics;
struct serving;
struct state_calls;

struct state_calls_options {
    const char *dir; /* folder of the store; NULL = no store, every call gets an error */
    uint64_t max_bytes;
    uint64_t max_body_bytes; /* most bytes of one upload */
    struct metrics *metrics; /* borrowed, like `serving` */
    struct serving *serving; /* borrowed; runs the lines of batches */
    uint32_t n_lines;        /* most lines running at once */
    uint64_t max_line_bytes; /* most bytes of running lines */
    uint64_t (*wall_s)(void *ctx);
};
MUST_USE enum status state_calls_new(struct loop *l, const struct state_calls_options *o,
                                     struct state_calls **out, struct error *err);
/* checks the store and retries; called every 250 ms */
void state_calls_tick(struct state_calls *c);
/* Call it after the HTTP server was closed, before serving and its pool are freed. NULL is
 * allowed. */
void state_calls_free(struct state_calls *c);
void state_calls_on_request(struct state_calls *c, struct http_request *r, uint64_t tenant);
/* The client can take more of a download. */
void state_calls_on_drain(struct state_calls *c, const struct http_request *r);
/* The client left. Returns false when the request is no call of this module. */
bool state_calls_on_abort(struct state_calls *c, const struct http_request *r);
