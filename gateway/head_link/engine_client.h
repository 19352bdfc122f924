#pragma once
/* The gateway's end of the link to the head: Hello, Welcome, heartbeats, credits, and a new Hello
 * whenever the session is lost (head silent for --peer-timeout, a wrong number, a new connection).
 * What was submitted in a lost session is the owner's to submit again: on_link tells. Pure but for
 * the bus behind engine_io; time is an argument. Loop thread only.
 *
 *   DOWN ──Hello sent──▶ GREETING ──Welcome──▶ OPEN
 *     ▲                     │ refused, no answer     │ silent, broken, reconnected
 *     └─────────────────────┴────────────────────────┘
 */
#include "proto/link/link.h"
#include "proto/link/silence.h"

#define ENGINE_HEARTBEAT_NS 250000000ull
#define ENGINE_CONNECT_NS   500000000ull /* of several heads, each */

struct engine_io {
    void *ctx;
    enum status (*send)(void *ctx, struct str frame); /* OK, AGAIN, or the link is gone */
    void (*reconnect)(void *ctx); /* drop the connection with all that is queued */
};

struct engine_events {
    void *ctx;
    void (*on_link)(void *ctx, bool up);
    /* The head refuses this gateway; STATUS_OK: it does so no more, or cannot be asked. NULL is
     * fine. */
    void (*on_refused)(void *ctx, enum status status);
    void (*on_tokens)(void *ctx, const struct msg_tokens *m);
    void (*on_cluster)(void *ctx, const struct msg_cluster *m);
    void (*on_writable)(void *ctx);                               /* credit came back */
    void (*on_adapters)(void *ctx, const struct msg_adapters *m); /* these two: NULL is fine */
    void (*on_adapter_answer)(void *ctx, const struct msg_adapter_answer *m);
};

struct engine_options {
    const char *node;                    /* borrowed, as the next two */
    const char *model;                   /* what it serves, for people; NULL: it does not say */
    const struct vocabulary *vocabulary; /* of its tokenizer; NULL: the same */
    uint64_t instance;
    uint64_t credit_bytes; /* what we take in without a Credit of ours */
    bool several;          /* heads: reconnect goes to the next one */
};

enum engine_state { ENGINE_DOWN, ENGINE_GREETING, ENGINE_OPEN, ENGINE_STATE_COUNT };

struct engine_client {
    struct engine_options o;
    struct engine_io io;
    struct engine_events events;
    enum engine_state state;
    struct link link;
    uint64_t silent_ns; /* of an open session, after which the head is lost */
    uint64_t now_ns, heard_ns, greeted_ns, beat_ns, retry_ns; /* retry_ns: no Hello before */
    bool is_overdue;   /* at the last tick the head had been silent for too long */
    uint64_t tried_ns; /* when this connection was begun */
    uint64_t term_seen, head_instance;
    uint64_t credit_owed;
    bool ends;             /* this process was told to end: a head that goes first is no fault */
    uint32_t n_failures;   /* Hellos in a row that led to nothing */
    enum status refused;   /* as on_refused was told last */
    char why_refused[256]; /* as the log was */
    bool connection_lost;  /* the socket said so while a session was open */
    bool connected;        /* as the socket says */
    bool keeps_grammar;    /* of this session's head: a Submit may say same_grammar */
    uint64_t n_dropped;    /* frames of no session of ours */
    struct arena decode, encode;
    struct strbuf frame;
};

void engine_client_init(struct engine_client *c, const struct engine_options *o,
                        const struct engine_io *io, const struct engine_events *events,
                        uint64_t now_ns);
void engine_client_fini(struct engine_client *c);
void engine_client_on_frame(struct engine_client *c, struct str frame, uint64_t now_ns);
/* From the socket's monitor: a connection is up (handshake done), or gone. */
void engine_client_on_connection(struct engine_client *c, bool up, const char *why,
                                 uint64_t now_ns);
void engine_client_tick(struct engine_client *c, uint64_t now_ns); /* every 50 ms or so */
void engine_client_goodbye(struct engine_client *c, const char *why);
/* STATUS_AGAIN: no session, or no credit; STATUS_LIMIT: larger than any frame may be. */
MUST_USE enum status engine_client_send(struct engine_client *c, const struct msg *m);
