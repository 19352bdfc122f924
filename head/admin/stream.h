#pragma once
/* GET /api/stream: server-sent events for the dashboard (docs/how-to/dashboard.md). Once a second
 * each listener gets one update, made of what is the same for all (written once) and of what it
 * asked for. Bounded: listeners, rows, bytes; one that reads too slowly misses updates, and is let
 * go after STREAM_SKIPS of them in a row. Owns the requests between stream_open and their end. Loop
 * thread. */
#include <jansson.h>

#include "common/http/server/server.h"
#include "head/core/core.h"

#define STREAM_LISTENERS  8u
#define STREAM_PART_BYTES (192u << 10) /* of a shared part, */
#define STREAM_BYTES      (768u << 10) /* of an update; the server's high water has room for one */
#define STREAM_HIGH_WATER (1u << 20)
#define STREAM_SKIPS      30u
#define STREAM_PERIOD_MS  1000u
#define STREAM_SLICE_MS   2u  /* between slices of the walk over the requests */
#define STREAM_LINGER_S   10u /* what the last listener leaves is kept for the next one */

struct stream_options {
    json_t *(*summary)(void *ctx); /* gives: the cluster in short */
    void *ctx;
};

struct stream;
struct stream *stream_new(struct loop *l, struct head_core *core, const struct stream_options *o);
void stream_free(struct stream *s); /* ends what is open; NULL is fine */
/* Begins the answer. STATUS_LIMIT: as many listen as may; STATUS_INVALID: the query. Then the
 * request is still the caller's, to be answered with err. */
MUST_USE enum status stream_open(struct stream *s, struct http_request *r, struct error *err);
void stream_on_abort(struct stream *s, struct http_request *r); /* not one of ours, NULL: fine */
