#pragma once
/* /v1/files and /v1/batches, as OpenAI's: each call is a job of the store's own thread, and its
 * answer is written on the loop when the job is done. Loop thread only. */
#include "gateway/batches/store/store.h"

struct http_request;
struct loop;
struct metrics;
struct serving;
struct state_calls;

struct state_calls_options {
    const char *dir; /* NULL: there is no store, and every call is told so */
    uint64_t max_bytes;
    uint64_t max_body_bytes; /* of one upload */
    struct metrics *metrics; /* borrowed, with serving */
    struct serving *serving; /* runs batches' lines, */
    uint32_t n_lines;        /* so many at once, */
    uint64_t max_line_bytes; /* and so many bytes of them */
    uint64_t (*wall_s)(void *ctx);
};
MUST_USE enum status state_calls_new(struct loop *l, const struct state_calls_options *o,
                                     struct state_calls **out, struct error *err);
void state_calls_tick(struct state_calls *c); /* every 250 ms or so */
/* After the HTTP server was closed, before serving and its pool. NULL is fine. */
void state_calls_free(struct state_calls *c);
void state_calls_on_request(struct state_calls *c, struct http_request *r, uint64_t tenant);
/* A file that is being read has room again. */
void state_calls_on_drain(struct state_calls *c, const struct http_request *r);
/* The client is gone. False: it was no call of these. */
bool state_calls_on_abort(struct state_calls *c, const struct http_request *r);
