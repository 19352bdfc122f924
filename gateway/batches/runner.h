#pragma once
/* Runs the store's waiting lines as requests of `serving`, a fixed number at once. A line's slot
 * is free again when its answer is committed. A line that got a 503 (no head, no workers,
 * overload) waits again in the store. It does not when its own source reached a limit of the
 * compile processes. Only the loop thread calls these functions. The store is used on its own
 * thread. */
#include "common/base/str.h"

struct batch_runner;
struct dialect;
struct encode_pool;
struct metrics;
struct api_error;
struct serving;
struct serving_request;
struct state_store;

struct batch_runner_options { /* options of a runner; all pointers are borrowed */
    struct state_store *store;
    struct encode_pool *thread; /* thread of the store */
    /* `serving_of` returns the serving of a line, or NULL with the error of its answer. `healthy`
     * returns true when lines can run now. Both get `ctx`. */
    struct serving *(*serving_of)(void *ctx, struct serving_request *q, struct api_error *e);
    bool (*healthy)(void *ctx);
    void *ctx;
    /* finds the model's name in a line, on the store's thread (models/peek.h); NULL = not needed */
    size_t (*find_model)(struct str body);
    struct metrics *metrics;
    uint64_t (*wall_s)(void *ctx);
    uint32_t n_slots;
    uint64_t max_bytes; /* most bytes of bodies and their parsed JSON, shared between tenants */
};

/* Returns the dialect for the url of a line; NULL = not allowed in a batch. */
const struct dialect *batch_dialect(struct str url);
struct batch_runner *batch_runner_new(const struct batch_runner_options *o);
/* Frees the runner. Call this function after the store's thread has ended, and before serving is
 * freed. `b` may be NULL. */
void batch_runner_free(struct batch_runner *b);
void batch_runner_close(struct batch_runner *b); /* makes the runner start no more lines */
/* wakes the runner, because there may be waiting lines */
void batch_runner_wake(struct batch_runner *b);
/* cancels the running lines of a batch that has ended */
void batch_runner_drop(struct batch_runner *b, int64_t batch_no);
/* Stores unsaved answers again and takes waiting lines. It is called every 250 ms. */
void batch_runner_tick(struct batch_runner *b);
