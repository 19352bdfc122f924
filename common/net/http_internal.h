#pragma once
/* The inside of the HTTP server, shared by http_server.c (listener, limits, list of connections)
 * and http_conn.c (one connection). Private to common/net. */
#include <uv.h>

#include "common/net/http_parser.h"
#include "common/net/http_server.h"

enum { HTTP_READ_BUFFER = 64 << 10 };

/*  READING    a request is being read, or none has begun
 *  WAITING    the handler has it
 *  STREAMING  headers are out, chunks follow
 *  FLUSHING   the answer is written; the next request waits for that
 *  LINGERING  an error answer is out; what still comes is thrown away, so that the client reads it
 *  CLOSING    handles are closing; nothing is called any more */
enum conn_state {
    CONN_READING,
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
    void *user;
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
    uint64_t body_charged; /* this request's share of the server's body budget */
    uint64_t queued_bytes; /* given to uv_write, not written */
    uint64_t linger_left;
    struct strbuf added; /* headers of the answer to come */
    char id[HTTP_ID_MAX + 1];
    struct http_answered answered; /* so far */
    uint64_t arrived_ns;
    bool keep_alive, chunked, wants_drain, read_stopped, processing;
};

struct http_server {
    struct loop *loop;
    struct http_limits limits;
    struct http_handlers handlers;
    char name[64];
    const char *root_path; /* borrowed; NULL: none */
    union http_stream listener;
    bool is_unix;
    bool listening, closing, draining;
    uint16_t port;
    struct conn *conns;
    uint32_t n_conns;
    uint32_t open_handles; /* the owner, the listener, every connection: freed at 0 */
    uint64_t body_bytes;
    char read_buffer[HTTP_READ_BUFFER];
};

void conn_accept(struct http_server *s, bool over_limit);
void conn_close(struct conn *c); /* idempotent; legal in every callback */
void conn_abort(struct conn *c); /* tells the handler, then closes */
bool conn_is_idle(const struct conn *c);
void http_server_release(struct http_server *s); /* one of open_handles is gone */
const char *http_status_text(int status);
