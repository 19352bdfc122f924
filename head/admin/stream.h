#pragma once
/* Serves GET /api/stream: server-sent events for the dashboard (docs/how-to/dashboard.md). Once
 * a second each listener gets one update. Some parts of the update are equal for all listeners
 * and written once. The other parts depend on the listener's query. The numbers of listeners,
 * rows and bytes are bounded. A listener that reads too slowly misses updates, and is dropped
 * after STREAM_SKIPS missed updates in a row. The stream owns the requests between stream_open
 * and their end. The code runs on the loop thread. */
#include <jansson.h>

#include "common/http/server/server.h"
#include "head/core/core.h"

#define STREAM_LISTENERS  8u
#define STREAM_PART_BYTES (192u << 10) /* limit of one shared part */
/* STREAM_BYTES limits one update, which must fit below the server's high-water mark. */
#define STREAM_BYTES      (768u << 10)
#define STREAM_HIGH_WATER (1u << 20)
#define STREAM_SKIPS      30u
#define STREAM_PERIOD_MS  1000u
#define STREAM_SLICE_MS   2u  /* pause between slices of the walk over the requests */
#define STREAM_LINGER_S   10u /* time for which data is kept after the last listener has left */

struct stream_options {
    json_t *(*summary)(void *ctx); /* returns the cluster's summary; the caller owns it */
    void *ctx;
};

struct stream;
struct stream *stream_new(struct loop *l, struct head_core *core, const struct stream_options *o);
void stream_free(struct stream *s); /* ends the open streams; `s` may be NULL */
/* Begins the answer. Returns STATUS_LIMIT when there are too many listeners, and STATUS_INVALID
 * when the query is wrong. After an error the caller still owns the request and answers it with
 * `err`. */
MUST_USE enum status stream_open(struct stream *s, struct http_request *r, struct error *err);
/* `s` may be NULL, and `r` may be unknown */
void stream_on_abort(struct stream *s, struct http_request *r);
