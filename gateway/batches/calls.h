#pragma once
/* Serves /v1/files and /v1/batches in OpenAI's form. Each call is a job of the store's thread.
 * The answer of a call is written on the loop when the job is done. Only the loop thread calls
 * these functions. */
#include "gateway/batches/store/store.h"

struct http_request;
struct loop;
struct metrics;
struct api_error;
struct serving;
struct serving_request;
struct state_calls;

struct state_calls_options {
    const char *dir; /* folder of the store; NULL = no store, and every call gets an error */
    uint64_t max_bytes;
    uint64_t max_body_bytes; /* most bytes of one upload */
    struct metrics *metrics; /* metrics of the gateway; borrowed */
    /* functions of the runner of lines (runner.h) */
    struct serving *(*serving_of)(void *ctx, struct serving_request *q, struct api_error *e);
    bool (*healthy)(void *ctx);
    void *ctx;
    size_t (*find_model)(struct str body);
    uint32_t n_lines;        /* most lines of batches running at once */
    uint64_t max_line_bytes; /* most bytes of running lines together */
    uint64_t (*wall_s)(void *ctx);
};
MUST_USE enum status state_calls_new(struct loop *l, const struct state_calls_options *o,
                                     struct state_calls **out, struct error *err);
/* Continues downloads, checks the store and lets the runner retry. It is called every 250 ms. */
void state_calls_tick(struct state_calls *c);
/* Frees the calls. Call this function after the HTTP server was closed, and before serving and
 * its pool are freed. `c` may be NULL. */
void state_calls_free(struct state_calls *c);
void state_calls_on_request(struct state_calls *c, struct http_request *r, uint64_t tenant);
/* Continues a download whose client can take more bytes. */
void state_calls_on_drain(struct state_calls *c, const struct http_request *r);
/* Ends the call of a client that has disconnected. Returns false when the request is no call of
 * this module. */
bool state_calls_on_abort(struct state_calls *c, const struct http_request *r);
