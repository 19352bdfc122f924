#pragma once
/* Defines the types that an HTTP server and its handlers share: limits, callbacks, and the
 * report on a request that has ended. The structs are plain data. */
#include "common/base/str.h"

struct http_request;

struct http_limits {
    /* Most connections (default 4096). At this bound a connection that waits for its client is
     * closed in favour of a new one (http/server/make_place.h). If no connection can be closed,
     * the new one gets 503. */
    uint32_t max_connections;
    /* most bytes of the request line and headers, above which the answer is 431; default 32 KiB;
     * also at most 100 fields */
    uint32_t max_header_bytes;
    /* most bytes of a body, above which the answer is 413; default 16 MiB */
    uint64_t max_body_bytes;
    /* `max_body_bytes_total` bounds all bodies over 64 KiB held at once, each counted with its
     * announced length; default 256 MiB. A body gets 503 above this bound or above its tenant's
     * share, and 413 when no share could ever hold it.
     * Three other budgets have the same size. The first is for small bodies, headers and bytes
     * sent ahead, of requests with a tenant.
     * The second is for the same bytes of requests without a tenant. The third is for the trees
     * of http_hold. These budgets count a connection's bytes above 16 KiB.
     * `max_answer_bytes_total` bounds answers that wait for their readers, likewise above 16 KiB
     * each. */
    uint64_t max_body_bytes_total, max_answer_bytes_total;
    uint32_t header_timeout_ms, idle_timeout_ms;
    /* Longest time without a byte of a body, and without a byte of an answer; default 30 s. */
    uint32_t body_timeout_ms, write_stall_ms;
    /* Least average rate of bodies and waiting answers over each window. Slower transfers are
     * ended. 0 = no least rate. The window's default is 30 s. */
    uint32_t min_bytes_per_s, rate_window_ms;
    /* bytes of a stream above which http_stream_room is 0; default 256 KiB */
    uint32_t stream_high_water_bytes;
};

/* Reports how a request ended: its HTTP status (499 = no answer, the client disconnected) and
 * the bytes of its answer's body. */
struct http_answered {
    int status;
    uint64_t body_bytes, duration_ns;
    bool aborted; /* true = the client disconnected before the end */
};

struct http_load {
    /* bytes held now that count in the two totals, small bodies included */
    uint64_t body_bytes, answer_bytes;
    struct http_counts { /* totals since the server started */
        /* bodies and answers that were ended, because no byte moved for too long or they were too
         * slow */
        uint64_t slow_bodies, slow_answers;
        /* bodies and answers that got 503, because a memory budget was used up */
        uint64_t refused_bodies, refused_answers;
        uint64_t failed_accepts; /* accepts that failed, because no file descriptor was left */
    } counts;
};

struct http_handlers {
    void *ctx;
    void (*on_request)(void *ctx, struct http_request *r);
    void (*on_drain)(void *ctx, struct http_request *r); /* a stream can take bytes again */
    /* Reports that the client disconnected before the answer's end. */
    void (*on_abort)(void *ctx, struct http_request *r);
    /* Writes a log; may be NULL. The function is called when the answer is complete, or after
     * on_abort when the client disconnected. `r` can still be read. */
    void (*on_answered)(void *ctx, const struct http_request *r, const struct http_answered *a);
    /* Returns true when a compressed body must be decoded (NULL = always). Otherwise on_request
     * gets the request at once with the body still compressed, and must refuse it. */
    bool (*unpacks)(void *ctx, const struct http_request *r);
    /* Looks at a body of more than HTTP_SMALL_BODY_BYTES before on_request, on a thread of libuv's
     * pool, because a look at it would keep the loop too long. Must be pure. on_request gets the
     * result with http_looked. NULL = there is nothing to look for. */
    size_t (*look)(struct str body);
    /* Called when a request's headers are complete and a body follows, before any of the body is
     * kept. Returns the most bytes that the body may have (NULL = max_body_bytes). 0 means that
     * the handler refuses the request: on_request gets the request at once without its body, and
     * the answer is the connection's last. */
    uint64_t (*body_max)(void *ctx, struct http_request *r);
};

/* HTTP_ID_MAX is the most bytes of a request's id. A longer id is cut. HTTP_ADDED_MAX is the
 * most bytes of all headers added to an answer. */
enum { HTTP_ID_MAX = 64, HTTP_ADDED_MAX = 2048 };

struct http_header_kv {
    const char *name, *value;
};
