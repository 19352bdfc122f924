#pragma once
/* HTTP/1.1 server: llhttp on the loop. Used by the gateway (OpenAI, SSE) and by every process for
 * /livez, /readyz, /metrics and the head's admin API. Knows nothing of routes or JSON.
 *
 * A request is handed over whole (headers and body, both bounded). The handler keeps the pointer
 * until it has answered or on_abort told it that the client is gone; after either the pointer is
 * dead. Streaming is pull-based: after http_stream_begin, write at most what http_stream_room
 * allows; once it has answered less than half of the high water, on_drain tells when at least half
 * is free again. Bodies and answers may take as long as they like while they move; every other wait
 * has a deadline. What is held for clients is bounded in all and by tenant
 * (common/collections/room.h). Loop thread only. */
#include "common/base/str.h"
#include "common/loop/loop.h"

struct http_server;
struct http_request;
struct tls_server; /* common/tls/tls.h */

struct http_limits {
    /* At the bound one that waits for its client makes place for a newcomer (http_places.h), which
     * gets 503 where none does; default 4096. */
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

struct http_options {
    const char *host;
    uint16_t port;             /* 0: any free one */
    const char *uds;           /* a Unix socket's path, in place of host and port; NULL: none */
    struct tls_server *tls;    /* borrowed: connections speak TLS with it; NULL: plain */
    struct http_limits limits; /* a 0 field takes its default */
    const char *server_name;   /* "Server:" header */
    const char *root_path;     /* borrowed: taken off the paths that begin with it; NULL: none */
};

/* STATUS_EXISTS with the port in the text when the port is in use. */
MUST_USE enum status http_server_start(struct loop *l, const struct http_options *o,
                                       const struct http_handlers *h, struct http_server **out,
                                       struct error *err);
uint16_t http_server_port(const struct http_server *s);
/* Drain: idle connections are closed, new ones have a second to bring their request, and each
 * answer is its connection's last. */
void http_server_stop_accepting(struct http_server *s);
void http_server_load(const struct http_server *s, struct http_load *out);
/* A request is open, or may still come. */
bool http_server_has_work(const struct http_server *s);
void http_server_close(struct http_server *s);

/* The request. Views live as long as the request. */
struct str http_method(const struct http_request *r);
struct str http_path(const struct http_request *r); /* without the query, not decoded */
struct str http_query(const struct http_request *r);
/* HOST[:PORT] that the request is for: its target's, or else its Host header; "": it says none. */
struct str http_authority(const struct http_request *r);
struct str http_header(const struct http_request *r,
                       const char *name); /* case-insensitive, or "" */
/* Field i, as it came. False: there are not so many. */
bool http_header_at(const struct http_request *r, uint32_t i, struct str *name, struct str *value);
struct str http_body(const struct http_request *r);
/* Sets *uid to the user of the process at the other end of a Unix socket. False: the connection is
 * of another kind. */
bool http_peer_uid(const struct http_request *r, uint32_t *uid);
/* The body's bytes, which become the caller's, to be freed with mem_free: a large one is given away
 * without a copy, which takes the loop a millisecond a megabyte. http_body is empty then. NULL: it
 * was empty before. They count on until http_release_body, or until the answer is written. */
char *http_take_body(struct http_request *r);
/* From on_request on: nobody reads the body any more, its bytes are freed (those that were taken
 * are by who took them), and none of its room is held for as long as the answer takes. */
void http_release_body(struct http_request *r);
/* From on_request on: the request holds so many bytes more, made of its body, until its answer is
 * written. They take of a room of their own; up to 16 KiB are free. To be called once.
 * STATUS_AGAIN: its tenant has no room now, and the request is to be refused with a 503;
 * STATUS_LIMIT: it would never have, with a 413. */
MUST_USE enum status http_hold(struct http_request *r, uint64_t bytes);
void http_set_user(struct http_request *r, void *user); /* the handler's own state */
void *http_get_user(const struct http_request *r);
/* Beside it, what on_answered is to find; freed there. */
void http_set_note(struct http_request *r, void *note);
void *http_get_note(const struct http_request *r);

/* The request's body and answer take the room of this tenant; 0, as it is until it is set: the
 * client's address. To be said in body_max, before the body takes its room, and in on_request. */
void http_set_tenant(struct http_request *r, uint64_t tenant);
/* False: so much of the tenant's answers waits for readers that a large one would be refused. */
bool http_answer_has_room(struct http_request *r);

/* A name for the request, "" until one is set. Longer ones are cut. */
enum { HTTP_ID_MAX = 64, HTTP_ADDED_MAX = 2048 };
void http_set_id(struct http_request *r, const char *id);
const char *http_get_id(const struct http_request *r);
/* On whatever answer it gets. What goes beyond HTTP_ADDED_MAX or is no header is left out. */
void http_add_header(struct http_request *r, const char *name, const char *value);

struct http_header_kv {
    const char *name, *value;
};
/* The whole answer. content_type may be NULL for an empty body. A body over 64 KiB for which there
 * is no room is answered with a 503 in its place. The pointer is dead afterwards. */
void http_respond(struct http_request *r, int status, const char *content_type, struct str body,
                  const struct http_header_kv *extra, size_t n_extra);
/* Headers now, chunks later (chunked for 1.1, close-delimited for 1.0). */
void http_stream_begin(struct http_request *r, int status, const char *content_type,
                       const struct http_header_kv *extra, size_t n_extra);
/* The same of an answer whose length is known: exactly that many bytes are written, then it is
 * ended. The connection goes on afterwards. */
void http_stream_begin_sized(struct http_request *r, int status, const char *content_type,
                             uint64_t length);
size_t http_stream_room(const struct http_request *r);
void http_stream_write(struct http_request *r, struct str chunk); /* copies */
/* Ends the connection without an answer, or in the middle of one. The pointer is dead afterwards;
 * on_abort is not called. */
void http_drop(struct http_request *r);
void http_stream_end(struct http_request *r); /* last chunk; the pointer is dead afterwards */
