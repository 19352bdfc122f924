#pragma once
/* Keeps sessions: one struct peer per live instance of a gateway, worker or operator, up to a
 * limit. It checks headers, sessions and sequence numbers. It decodes messages, sends them with
 * credits, keeps heartbeats and reports lost peers. It does not see replicas or requests: an
 * owner attaches its own struct to peer->owner. The caller passes received frames and the time,
 * and frames are sent through head_io. The code runs on the loop thread. */
#include "common/base/random.h"
#include "common/bus/bus.h"
#include "head/links/events.h"
#include "proto/link/link.h"
#include "proto/link/silence.h"

/* Sends frames. `send` returns STATUS_AGAIN when the socket is full (try later), and
 * STATUS_NOT_FOUND when the connection is gone. */
struct head_io {
    void *ctx;
    enum status (*send)(void *ctx, struct bus_peer to, struct str frame);
    /* Called when a peer reports a term that is not below ours and did not come from us. The
     * peer was refused and will connect again. Meanwhile the store is asked which head has the
     * lease. NULL = no lease, so this head takes the next term. */
    void (*on_foreign_term)(void *ctx, uint64_t term);
};

struct peer {
    struct bus_peer addr;
    bool open; /* the peer has a session; false = it waits for a Hello until it is lost */
    bool suspect;
    /* at the last tick, the peer had been silent for too long (proto/link/silence.h) */
    bool is_overdue;
    /* the peer's key is no longer authorized; the instance may return with another key */
    bool key_gone;
    bool blocked; /* the peer has no credit; nothing is sent before a Credit arrives */
    enum peer_role role;
    uint64_t instance;
    uint64_t told_term; /* highest term sent to the peer; a term_seen up to this is ours */
    char key[41], node[65], version[33];
    struct link link;
    uint64_t opened_ns, heard_ns;
    /* `sent_ns` is the time of the last message of any kind to the peer. A heartbeat is sent
     * only when no other message was. */
    uint64_t sent_ns;
    /* time in ms that a gateway without requests lets pass between two heartbeats, and so does the
     * head; 0 = the usual time */
    uint32_t quiet_ms;
    /* bytes that the head has consumed and not yet returned to the peer as credit */
    uint64_t credit_owed;
    void *owner;
    struct peer *next_in_bucket;
    uint32_t index; /* index into peers.all */
};

struct peers_config {
    uint32_t max_peers;
    bool insecure; /* the peer's role comes from its Hello and is not authenticated */
    uint64_t window_bytes;
    uint32_t heartbeat_ms, suspect_ms, lost_ms;
    uint32_t
        quiet_ms; /* longest time between two heartbeats of a quiet gateway; 0 = none is quiet */
    uint64_t head_instance;
};

struct peers {
    struct peers_config config;
    struct head_io io;
    struct events *events;
    const struct authorized *authorized; /* borrowed; NULL = every connected peer is accepted */
    struct rng *rng;                     /* random numbers for session numbers */
    uint64_t now_ns;                     /* time of the last frame or tick */
    uint64_t term;                       /* this head's term, for Welcome; set by the cluster */
    struct peer **all;     /* all n peers; an entry's index changes when another is removed */
    struct peer **buckets; /* array of n_buckets (a power of two), by address */
    uint32_t n, n_buckets;
    struct arena decode, encode;
    struct strbuf frame;
    /* text of the last refusal that was logged; a refused peer retries twice a second */
    char refused_text[160];
    uint64_t refused_ns;
    uint64_t n_unknown_session, n_malformed, n_refused, n_broken; /* counters for metrics */
};

enum peers_event {
    PEERS_NOTHING, /* the frame was dropped and counted, or handled here */
    PEERS_HELLO,   /* the caller answers with peers_open or peers_refuse */
    PEERS_MSG,
    PEERS_BROKEN, /* *peer lost its session: wrong sequence number, or frame not allowed */
};

struct peers_input {
    struct bus_peer from;
    enum peer_role role; /* authenticated role; ROLE_NONE with --insecure */
    const char *key;
    struct str frame;
};

void peers_init(struct peers *p, const struct peers_config *c, const struct head_io *io,
                struct events *events, struct rng *rng);
void peers_fini(struct peers *p);
/* Handles one frame. *msg is valid until the next call. */
enum peers_event peers_receive(struct peers *p, const struct peers_input *in, uint64_t now_ns,
                               struct peer **peer, struct msg *msg);
/* Opens a session for a Hello and sends Welcome. Sets *known when the instance already had a
 * peer, whose old session is then gone. Returns NULL when the Hello was refused: the table is
 * full, or the instance belongs to another key. */
struct peer *peers_open(struct peers *p, const struct peers_input *in, const struct msg_hello *h,
                        uint64_t now_ns, bool *known);
void peers_refuse(struct peers *p, struct bus_peer to, enum status status, const char *text,
                  uint64_t now_ns);
struct peer *peers_find_instance(const struct peers *p, enum peer_role role, uint64_t instance);
/* Ends the session. The peer stays until it is lost or sends Hello again. */
void peers_close_session(struct peers *p, struct peer *peer);
/* Closes the sessions of keys that are no longer authorized. Call it when `authorized` has
 * changed. */
void peers_revoke(struct peers *p, uint64_t now_ns);
/* Removes and frees the peer. */
void peers_remove(struct peers *p, struct peer *peer);

/* Sends a message. Returns STATUS_AGAIN without credit or with a full socket; nothing was sent
 * then. Returns STATUS_CLOSED without a session. Returns STATUS_UNSUPPORTED when the peer's
 * protocol version is older than this type. */
MUST_USE enum status peers_send(struct peers *p, struct peer *to, const struct msg *m);
/* These functions send one frame to many peers. peers_encode encodes it once, and
 * peers_send_encoded overwrites session and sequence number for each peer. */
MUST_USE enum status peers_encode(struct peers *p, const struct msg *m, struct strbuf *out);
MUST_USE enum status peers_send_encoded(struct peers *p, struct peer *to, enum msg_type type,
                                        struct strbuf *frame);

/* Holds the callbacks of peers_tick. on_lost must remove the peer (peers_remove) or end the
 * process. */
struct peers_tick_fns {
    void *ctx;
    void (*on_lost)(void *ctx, struct peer *peer);
    /* Fills in the heartbeat's fields other than the time. NULL = nothing to fill. */
    void (*fill_heartbeat)(void *ctx, const struct peer *peer, struct msg_heartbeat *m);
};
void peers_tick(struct peers *p, uint64_t now_ns, const struct peers_tick_fns *fns);
/* Excludes `ns` from the silence of every peer, because the head itself did not run for that
 * time. */
void peers_forgive(struct peers *p, uint64_t ns);
