#pragma once
/* The inside of the HTTP server, shared by http_server.c (listener, limits, list of connections)
 * and http_conn.c (one connection). Private to common/net. */
#include <uv.h>

#include "common/collections/room.h"
#include "common/http/message/parser.h"
#include "common/http/server/charge.h"
#include "common/http/server/places.h"
#include "common/http/server/progress.h"
#include "common/http/server/server.h"

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
    struct place place;
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

/* What streams were given in this turn of the loop; it goes out when the turn ends, one write for
 * each connection, however many events there are for it (http_gather.c). */
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

struct http_server {
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

/* fd: accepted already; -1: the listener has it. NULL: it is gone already. */
struct conn *conn_accept(struct http_server *s, int fd);
void conn_refuse_place(struct conn *c); /* 503: there are too many */
void conn_close(struct conn *c);        /* idempotent; legal in every callback */
void conn_abort(struct conn *c);        /* tells the handler, then closes */
bool conn_is_idle(const struct conn *c);
/* The server drains: closes an idle one; one that has asked nothing yet has a second to, half a
 * request five to be whole. */
void conn_drain(struct conn *c);
/* It has a request, or may still bring one. */
bool conn_has_work(const struct conn *c);
void conn_enter(struct conn *c, enum conn_state next);
static inline struct conn *conn_of(const struct http_request *r)
{
    return (struct conn *)r; /* the request is the first member */
}

/* For http_answer.c. */
bool conn_send(struct conn *c, struct str a, struct str b, struct str d); /* by TLS where it is */
void conn_after_flush(struct conn *c);
void conn_forget_decoded(struct conn *c);
void conn_tell_answered(struct conn *c, bool aborted);
void conn_append_head(struct conn *c, struct strbuf *b, int status, const char *content_type);

/* http_deadline.c: how long is waited for what. */
void conn_arm(struct conn *c, uint64_t ms);
void conn_arm_reading(struct conn *c);
/* Bytes of a body have come. */
void conn_body_moved(struct conn *c, uint64_t bytes);
/* An answer has bytes waiting that had none. */
void conn_arm_writing(struct conn *c);
/* Whether its peer has acknowledged bytes since it was last asked. */
bool conn_answer_moved(struct conn *c);
uint64_t conn_address(struct conn *c); /* of its client, as a number that is not 0 */
/* The request's room counts for its tenant, or else for its client. */
uint64_t conn_tenant(struct conn *c);

/* For http_tls.c: bytes as they go over the network, and as the parser reads them. */
bool conn_send_plain(struct conn *c, struct str a, struct str b, struct str d);
void conn_on_plain(struct conn *c, struct str bytes);
void conn_on_eof(struct conn *c);
void conn_abort_soon(struct conn *c); /* on the next turn */
void conn_refuse(struct conn *c, int status, const char *text);
void conn_release(struct conn *c); /* one of its open_handles is gone: freed at 0 */
void conn_linger(struct conn *c);  /* throws away what comes, for a while, then closes */

/* http_tls.c: a connection's bytes through its session. */
bool conn_tls_begin(struct conn *c);
bool conn_tls_send(struct conn *c, struct str a, struct str b, struct str d);
void conn_tls_on_bytes(struct conn *c, struct str bytes);
void conn_tls_goodbye(struct conn *c);

/* http_coding.c. False: the body came as it is. Else it is decoded, and conn_decoded called in a
 * later turn with what is the connection's then; or the request is refused. */
bool conn_decode(struct conn *c);
void conn_decoded(struct conn *c, struct str owned_body);
bool is_header(const struct http_field *f, const char *name); /* of any case */

/* http_gather.c */
void gather_open(struct http_server *s);
void gather_close(struct http_server *s); /* writes what is there; its handle is one of s's */
void gather_fini(struct http_server *s);
void gather_add(struct conn *c, struct str bytes);
void gather_drop(struct conn *c); /* it closes: what is gathered for it is forgotten */
/* For it. Writes n pieces, or hands what cannot be written now to uv_write. Calls nobody back. */
void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n);
void conn_flushed(struct conn *c); /* in a later call of the loop's: goes on, if all is written */
void http_server_release(struct http_server *s); /* one of open_handles is gone */
const char *http_status_text(int status);
