#pragma once
/* Defines a connection and its server, on which all files of the HTTP server work. Only
 * common/http uses this header. Only the loop thread uses them. */
#include <uv.h>

#include "common/collections/room.h"
#include "common/http/conn/place.h"
#include "common/http/conn/progress.h"
#include "common/http/message/parser.h"
#include "common/http/message/service.h"

enum { HTTP_READ_BUFFER = 64 << 10, HTTP_PLAIN_BUFFER = 16 << 10 };
/* HTTP_SMALL_ANSWER_BYTES and HTTP_FREE_BYTES are the bytes of a connection that are never
 * charged: bytes waiting for the client, and bytes kept of requests. The number of connections
 * bounds their sum. */
enum { HTTP_SMALL_ANSWER_BYTES = 16 << 10, HTTP_FREE_BYTES = 16 << 10 };

/* READING    a request is being read, or none has begun
 *  DECODING   the request is complete; a pool thread decodes its compressed body, or looks at it
 *  WAITING    the handler has the request
 *  STREAMING  the headers are sent, chunks follow
 *  FLUSHING   the answer is complete and being written; the next request waits for that
 *  LINGERING  an error answer is sent; incoming bytes are dropped so that the client can read it
 *  CLOSING    handles are closing; no callback is called any more */
enum conn_state {
    CONN_READING,
    CONN_DECODING,
    CONN_WAITING,
    CONN_STREAMING,
    CONN_FLUSHING,
    CONN_LINGERING,
    CONN_CLOSING,
    CONN_STATE_COUNT
};

union http_stream { /* a TCP or a Unix socket */
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

/* The request is the first member of struct conn, so the two have the same address. */
struct http_request {
    void *user, *note;
};

struct conn {
    struct http_request request;
    struct conn *next, **prev;
    struct http_server *server;
    enum conn_state state;
    union http_stream io;
    uv_timer_t deadline;
    uv_shutdown_t shutdown;
    uint32_t open_handles;
    struct http_parser *parser;
    struct strbuf pending; /* bytes that arrived after a request that is not answered yet */
    /* bytes charged to the server's budgets */
    struct room_charge body, kept, strange, tree, answer;
    uint64_t taken_body_bytes; /* bytes of the body that the handler took over and still holds */
    uint64_t tenant;    /* tenant of the request; 0 = no tenant, and its client's address counts */
    uint64_t address;   /* number of the client's address; 0 = not known yet */
    uint64_t announced; /* length that the body announces; 0 = no length */
    struct progress progress; /* progress of the body received, or of the answer sent */
    uint64_t sent_bytes;      /* bytes given to the network since the connection began */
    uint64_t taken_bytes;  /* part of sent_bytes that the peer had acknowledged at the last check */
    uint64_t queued_bytes; /* bytes given to uv_write and not written yet */
    uint64_t gathered_bytes;
    /* index + 1 of the connection and of its pieces in server->gather; 0 = none */
    uint32_t i_gathered, first_piece, last_piece;
    uint64_t linger_left;
    struct str decoded;  /* decoded form of a compressed body, owned; ptr NULL = none */
    uv_work_t *decoding; /* work on libuv's pool; NULL = no decoding is in progress */
    size_t looked;       /* result of http_handlers.look; 0 = it was not called */
    struct strbuf added; /* headers for the next answer */
    char id[HTTP_ID_MAX + 1];
    struct http_answered answered; /* report on the answer so far */
    uint64_t arrived_ns;
    struct conn_place place;
    struct tls_session *tls; /* TLS session; NULL = not encrypted */
    uint64_t tls_own_bytes;  /* queued bytes that TLS produced by itself */
    bool cut; /* true = closed in the middle of an answer, so TLS sends no close_notify */
    bool keep_alive, chunked, wants_drain, read_stopped, processing;
    bool has_asked; /* true = the client's first request has begun */
    bool no_room;   /* true = there is no memory for the announced body */
    /* true = a deadline has passed; bytes already in the kernel may still meet it */
    bool doomed;
    bool broken;   /* true = the next deadline aborts the connection */
    bool reset;    /* true = the connection is closed with a TCP reset */
    bool is_extra; /* true = accepted above the limit of connections; other connections are kept */
};

/* `http_gather` holds the bytes that streams sent in this turn of the loop. They are written
 * when the turn ends, with one write for each connection (gather.c). */
struct http_gather {
    struct strbuf bytes;
    struct http_piece {
        size_t at, n;
        uint32_t next; /* index + 1 of the connection's next piece; 0 = none */
    } * pieces;
    uint32_t n_pieces, cap_pieces;
    struct conn **conns; /* connections in the order of their first piece; NULL = closed since */
    struct conn **told;  /* the last `conns`, while callbacks run; same capacity as `conns` */
    uint32_t n_conns, cap_conns;
    uv_idle_t flush; /* hook that is active while `conns` is not empty */
};

/* `conn_calls` lists the calls from lower files into the files above them. server.c sets them
 * once. */
struct conn_calls {
    void (*written)(struct conn *c, int rc); /* a write has ended; rc is 0 or libuv's error */
    void (*flushed)(struct conn *c); /* all bytes gathered for the connection were written */
    void (*deadline)(uv_timer_t *t);
    /* the last of open_handles is gone, so the server can be freed */
    void (*free)(struct http_server *s);
};

struct http_server {
    const struct conn_calls *calls;
    struct loop *loop;
    struct http_limits limits;
    struct http_handlers handlers;
    char name[64];
    const char *root_path; /* prefix of every path (--root-path), borrowed; NULL = none */
    union http_stream listener;
    bool is_unix;
    struct tls_server *tls; /* TLS settings, borrowed; NULL = not encrypted */
    bool listening, closing, draining;
    uint16_t port;
    struct conn *conns;
    uint32_t n_conns, n_extra; /* number of all connections, and of those with is_extra */
    /* count of owner, listener, gather and each connection; 0 frees the server */
    uint32_t open_handles;
    struct room bodies, answers; /* budgets for large bodies and for answers that wait */
    /* Budgets for small bodies, headers and bytes sent ahead. `kept` is for requests with a
     * tenant, `strangers` for requests without a tenant. */
    struct room kept, strangers;
    /* budget for trees that handlers build from bodies and hold until they answer */
    struct room trees;
    struct places waiting, held;
    struct progress_rules up, down; /* progress rules: `up` for bodies, `down` for answers */
    struct http_counts counts;
    uint64_t address_seed;
    struct http_gather gather;
    char read_buffer[HTTP_READ_BUFFER];
    char plain_buffer[HTTP_PLAIN_BUFFER]; /* buffer for decrypted bytes, one piece at a time */
};

static inline struct conn *conn_of(const struct http_request *r)
{
    return (struct conn *)r; /* the request is the first member of struct conn */
}

static inline bool conn_is_answering(const struct conn *c)
{
    return c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

/* Drops one of the server's open_handles, and frees the server after the last. */
static inline void http_server_release(struct http_server *s)
{
    if (--s->open_handles == 0)
        s->calls->free(s);
}
