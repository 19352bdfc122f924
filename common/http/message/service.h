#pragma once
/* Types between a server of HTTP and its handlers: limits, callbacks, and what is told of a request
 * when it has ended. Plain data. */
#include "common/base/str.h"

struct http_request;

struct http_limits {
    /* At the bound one that waits for its client makes place for a newcomer
     * (http/server/make_place.h), which gets 503 where none does; default 4096. */
    uint32_t max_connections;
    uint32_t max_header_bytes; /* 431; default 32 KiB, at most 100 fields */
    uint64_t max_body_bytes;   /* 413; default 16 MiB */
    /* All bodies over 64 KiB held at once, each with the length that it announces: 503 above, or
     * above the tenant's share, and 413 of what is above any share; default 256 MiB. Small bodies,
     * heads and what was sent ahead have as much again, where a connection holds more than 16 KiB
     * of them, those of requests without a tenant as much as well, and so has http_hold. The same
     * of answers that wait for their readers, with more than 16 KiB. */
    uint64_t max_body_bytes_total, max_answer_bytes_total;
    uint32_t header_timeout_ms, idle_timeout_ms;
    uint32_t body_timeout_ms, write_stall_ms; /* without a byte of a body, of an answer; 30 s */
    /* Bodies and waiting answers move so many bytes on average over each window, or end; 0: there
     * is no least rate. The window's default is 30 s. */
    uint32_t min_bytes_per_s, rate_window_ms;
    uint32_t stream_high_water_bytes; /* http_stream_room is 0 above; default 256 KiB */
};

/* How a request ended: what it was answered with (499: nothing, the client had left) and how many
 * bytes of a body. */
struct http_answered {
    int status;
    uint64_t body_bytes, duration_ns;
    bool aborted; /* the client left before the end */
};

struct http_load {
    uint64_t body_bytes, answer_bytes;      /* held now, of the totals; body: small ones, too */
    struct http_counts {                    /* since the server began */
        uint64_t slow_bodies, slow_answers; /* given up: no byte for too long, or too few */
        uint64_t refused_bodies, refused_answers; /* 503: no room */
        uint64_t failed_accepts;                  /* no file descriptor was left */
    } counts;
};

struct http_handlers {
    void *ctx;
    void (*on_request)(void *ctx, struct http_request *r);
    void (*on_drain)(void *ctx, struct http_request *r); /* streaming: room again */
    void (*on_abort)(void *ctx, struct http_request *r); /* client gone before the answer's end */
    /* For a log, or NULL: after the last byte was written, or the client left and on_abort has
     * heard of it; r can be read. */
    void (*on_answered)(void *ctx, const struct http_request *r, const struct http_answered *a);
    /* unpacks says whether a compressed body is to be unpacked (NULL: always). A handler that says
     * no hears of the request at once, with the body as it came, and refuses it. */
    bool (*unpacks)(void *ctx, const struct http_request *r);
    /* body_max is asked when a request's head is there and a body follows, before any of it is
     * kept: how many bytes it may have (NULL: max_body_bytes). 0: the handler refuses the request.
     * on_request hears of it at once, without its body, and the answer is the connection's last. */
    uint64_t (*body_max)(void *ctx, struct http_request *r);
};

/* A request's name is cut to the first; headers that are added take at most the second. */
enum { HTTP_ID_MAX = 64, HTTP_ADDED_MAX = 2048 };

struct http_header_kv {
    const char *name, *value;
};
