#pragma once
/* `engine_client` is the gateway's end of the link to the head: Hello, Welcome, heartbeats and
 * credits. It sends a new Hello whenever the session is lost: the head was silent for
 * --peer-timeout, a message number was wrong, or the connection is new. `on_link` reports a lost
 * session, and the owner must submit its choices again. The client is pure except for the bus
 * behind `engine_io`. Time is an argument. Only the loop thread calls these functions.
 *   DOWN ──Hello sent──▶ GREETING ──Welcome──▶ OPEN
 *   ▲                     │ refused, no answer   │ silent, broken, reconnected
 *   └─────────────────────┴────────────────────────┘
 * A link without requests becomes quiet if the head allows it: both sides then send heartbeats
 * more seldom, and wait longer for the next one. It beats at once when a request comes, and the
 * usual times apply from then on. A lost connection ends the quiet too. */
#include "proto/link/link.h"
#include "proto/link/silence.h"

#define ENGINE_HEARTBEAT_NS 250000000ull
/* nanoseconds without a request after which a link becomes quiet */
#define ENGINE_QUIET_AFTER_NS 1000000000ull
/* nanoseconds for each of several heads to accept a connection */
#define ENGINE_CONNECT_NS 500000000ull

struct engine_io {
    void *ctx;
    /* sends a frame; returns STATUS_OK, STATUS_AGAIN, or an error when the link is down */
    enum status (*send)(void *ctx, struct str frame);
    void (*reconnect)(void *ctx); /* drops the connection and all queued messages */
};

struct engine_events {
    void *ctx;
    void (*on_link)(void *ctx, bool up);
    /* Reports that the head refuses this gateway. STATUS_OK means that the head stopped
     * refusing, or cannot be reached. May be NULL. */
    void (*on_refused)(void *ctx, enum status status);
    void (*on_tokens)(void *ctx, const struct msg_tokens *m);
    void (*on_cluster)(void *ctx, const struct msg_cluster *m);
    void (*on_writable)(void *ctx); /* reports that the gateway has credit again */
    /* the following two functions may be NULL */
    void (*on_adapters)(void *ctx, const struct msg_adapters *m);
    void (*on_adapter_answer)(void *ctx, const struct msg_adapter_answer *m);
};

struct engine_options {
    const char *node;  /* name of this host; borrowed, like `model` and `vocabulary` */
    const char *model; /* name of the served model, for logs; may be NULL */
    const struct vocabulary *vocabulary; /* vocabulary of the tokenizer; may be NULL */
    uint64_t instance;
    uint64_t credit_bytes; /* bytes that the head may send before a Credit */
    bool several;          /* there are several heads: a reconnect switches to the next head */
};

enum engine_state { ENGINE_DOWN, ENGINE_GREETING, ENGINE_OPEN, ENGINE_STATE_COUNT };

struct engine_client {
    struct engine_options o;
    struct engine_io io;
    struct engine_events events;
    enum engine_state state;
    struct link link;
    uint64_t silent_ns; /* nanoseconds of silence in an open session after which the head is lost */
    /* times of the last events; no Hello is sent before `retry_ns` */
    uint64_t now_ns, heard_ns, greeted_ns, beat_ns, retry_ns;
    bool is_overdue;   /* the head had been silent too long at the last tick */
    bool in_use;       /* set by the owner before a tick: requests are open */
    bool is_quiet;     /* the last heartbeat announced the next one in `quiet_ms` */
    uint32_t quiet_ms; /* time between two heartbeats of a quiet link; 0 = it is never quiet */
    uint64_t used_ns;  /* last time when a request was open */
    uint64_t tried_ns; /* time when the current connection attempt began */
    uint64_t term_seen, head_instance;
    uint64_t credit_owed;
    bool ends;             /* this process is stopping, so the loss of the head is not an error */
    uint32_t n_failures;   /* number of failed Hellos in a row */
    enum status refused;   /* last status passed to `on_refused` */
    char why_refused[256]; /* last reason of a refusal that was logged */
    bool connection_lost;  /* the socket was lost while a session was open */
    bool connected;        /* true while the socket is connected */
    bool keeps_grammar;    /* this head keeps grammars, so a Submit may set `same_grammar` */
    uint64_t n_dropped;    /* number of dropped frames that do not belong to the current session */
    struct arena decode, encode;
    struct strbuf frame;
};

void engine_client_init(struct engine_client *c, const struct engine_options *o,
                        const struct engine_io *io, const struct engine_events *events,
                        uint64_t now_ns);
void engine_client_fini(struct engine_client *c);
void engine_client_on_frame(struct engine_client *c, struct str frame, uint64_t now_ns);
/* Handles an event of the socket's monitor: the connection is up (handshake done) or gone. */
void engine_client_on_connection(struct engine_client *c, bool up, const char *why,
                                 uint64_t now_ns);
/* keeps the session alive; called every 125 ms */
void engine_client_tick(struct engine_client *c, uint64_t now_ns);
void engine_client_goodbye(struct engine_client *c, const char *why);
/* Sends a message to the head. Returns STATUS_AGAIN without a session or credit, and
 * STATUS_LIMIT when the message is larger than a frame may be. */
MUST_USE enum status engine_client_send(struct engine_client *c, const struct msg *m);
