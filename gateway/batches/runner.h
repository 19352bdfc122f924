#pragma once
/* Runs the store's waiting lines as requests of `serving`, so many at once. A line's slot is free
 * again when its answer is committed; what was answered with 503 (no head, no workers, overload)
 * waits again in the store, unless the line's own source has met a limit of the compile processes.
 * Loop thread only; the store is touched on its own thread. */
#include "common/base/str.h"

struct batch_runner;
struct dialect;
struct encode_pool;
struct metrics;
struct serving;
struct state_store;

struct batch_runner_options { /* all borrowed */
    struct state_store *store;
    struct encode_pool *thread; /* the store's */
    struct serving *serving;
    struct metrics *metrics;
    uint64_t (*wall_s)(void *ctx);
    uint32_t n_slots;
    uint64_t max_bytes; /* of their bodies and of the JSON that they keep, shared between tenants */
};

/* What a line's url is answered by; NULL: not in a batch. */
const struct dialect *batch_dialect(struct str url);
struct batch_runner *batch_runner_new(const struct batch_runner_options *o);
/* After the store's thread has ended, before serving. NULL is fine. */
void batch_runner_free(struct batch_runner *b);
void batch_runner_close(struct batch_runner *b);                  /* starts nothing any more */
void batch_runner_wake(struct batch_runner *b);                   /* there may be lines */
void batch_runner_drop(struct batch_runner *b, int64_t batch_no); /* it has ended: stop its lines */
void batch_runner_tick(struct batch_runner *b);                   /* every 250 ms or so */
