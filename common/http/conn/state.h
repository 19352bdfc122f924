#pragma once
/* A connection and its server: what all rooms of the HTTP server work on. Private to common/http.
 * Loop thread only. */
#include <uv.h>

#include "common/collections/room.h"
#include "common/http/conn/place.h"
#include "common/http/conn/progress.h"
#include "common/http/message/parser.h"
#include "common/http/message/service.h"

enum { HTTP_READ_BUFFER = 64 << 10, HTTP_PLAIN_BUFFER = 16 << 10 };
/* A connection may have as many bytes waiting for its client, and keep as many of its requests,
 * whoever it is: the number of connections bounds them all. */
enum { HTTP_SMALL_ANSWER_BYTES = 16 << 10, HTTP_FREE_BYTES = 16 << 10 };

/*  READING    a request is being read, or none has begun
 *  DECODING   it is whole, and its compressed body is with a thread of the pool
 *  WAITING    the handler has it
 *  STREAMING  headers are out, chunks follow
 *  FLUSHING   the answer is written; the next request waits for that
 *  LINGERING  an error answer is out; what still comes is thrown away, so that the client reads it
 *  CLOSING    handles are closing; nothing is called any more */
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

union http_stream { /* of a TCP or a Unix socket */
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct http_request { /* embedded: its address is the connection's while it has a request */
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
    struct strbuf pending; /* read behind a request that is not answered yet */
    struct room_charge body, kept, strange, tree, answer; /* of the server's rooms */
    uint64_t taken_body_bytes; /* of a body that its handler took and still has */
    uint64_t tenant;           /* of the request, for its room; 0: the client's address */
    uint64_t address;          /* of the client, as such a number; 0: not looked for yet */
    uint64_t announced;        /* bytes that the body's length says; 0: it says none */
    struct progress progress;  /* of the body that comes, or of the answer that waits */
    uint64_t sent_bytes;       /* given to the network since the connection began */
    uint64_t taken_bytes;      /* of them, what the peer had acknowledged when last asked */
    uint64_t queued_bytes;     /* given to uv_write, not written */
    uint64_t gathered_bytes;
    uint32_t i_gathered, first_piece, last_piece; /* in server->gather, each + 1; 0: none */
    uint64_t linger_left;
    struct str decoded;  /* owned: the body, where it came compressed; ptr NULL: it did not */
    uv_work_t *decoding; /* NULL: nothing is being decoded */
    struct strbuf added; /* headers of the answer to come */
    char id[HTTP_ID_MAX + 1];
    struct http_answered answered; /* so far */
    uint64_t arrived_ns;
    struct conn_place place;
    struct tls_session *tls; /* NULL: plain */
    uint64_t tls_own_bytes;  /* queued of what TLS said by itself */
    bool cut;                /* it breaks off in an answer: TLS says no goodbye */
    bool keep_alive, chunked, wants_drain, read_stopped, processing;
    bool has_asked; /* a request of its own has begun */
    bool no_room;   /* for the body that its head announces */
    bool doomed;    /* a deadline has passed; what the network has for us by now may save it */
    bool broken;    /* the next deadline aborts it */
    bool reset;     /* it is closed without a last word */
    bool is_extra;  /* it came where there was no place: it takes none from others */
};

/* Bytes that streams were given in this turn of the loop. They go out when the turn ends, one write
 * for each connection, however many events there are for it (gather.c). */
struct http_gather {
    struct strbuf bytes;
    struct http_piece {
        size_t at, n;
        uint32_t next; /* of the same connection, + 1; 0: none */
    } * pieces;
    uint32_t n_pieces, cap_pieces;
    struct conn **conns; /* in the order of their first piece; NULL: closed meanwhile */
    struct conn **told;  /* the round before's, while they are told; as large as conns */
    uint32_t n_conns, cap_conns;
    uv_idle_t flush; /* runs while conns is not empty */
};

/* How rooms below reach those above them; set once, by server.c. */
struct conn_calls {
    void (*written)(struct conn *c, int rc); /* one write has ended: 0, or an error of libuv's */
    void (*flushed)(struct conn *c);         /* all that was gathered for it has been given out */
    void (*deadline)(uv_timer_t *t);
    void (*free)(struct http_server *s); /* the last of its open_handles is gone */
};

struct http_server {
    const struct conn_calls *calls;
    struct loop *loop;
    struct http_limits limits;
    struct http_handlers handlers;
    char name[64];
    const char *root_path; /* borrowed; NULL: none */
    union http_stream listener;
    bool is_unix;
    struct tls_server *tls; /* borrowed; NULL: plain */
    bool listening, closing, draining;
    uint16_t port;
    struct conn *conns;
    uint32_t n_conns, n_extra;   /* all; of them, those that are refused: there is no place */
    uint32_t open_handles;       /* the owner, the listener, every connection: freed at 0 */
    struct room bodies, answers; /* large bodies; answers that wait */
    struct room kept, strangers; /* small bodies, heads, and what was sent ahead: of requests with a
                                    tenant, and of those without */
    struct room trees;           /* what handlers make of bodies, and hold until they answer */
    struct places waiting, held;
    struct progress_rules up, down; /* of bodies, and of answers */
    struct http_counts counts;
    uint64_t address_seed;
    struct http_gather gather;
    char read_buffer[HTTP_READ_BUFFER];
    char plain_buffer[HTTP_PLAIN_BUFFER]; /* what TLS makes of it, a piece at a time */
};

static inline struct conn *conn_of(const struct http_request *r)
{
    return (struct conn *)r; /* the request is the first member */
}

static inline bool conn_is_answering(const struct conn *c)
{
    return c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

/* One of open_handles is gone. */
static inline void http_server_release(struct http_server *s)
{
    if (--s->open_handles == 0)
        s->calls->free(s);
}
