#pragma once
/* Sessions: who is on the other end of which connection. One struct peer per live instance of a
 * gateway, worker or operator, bounded. It checks headers, sessions and sequence numbers, decodes,
 * sends with credits, keeps heartbeats and says who is lost. It knows nothing of replicas or
 * requests: an owner hangs its own struct on peer->owner. Pure: frames in, frames out through
 * head_io, the time is an argument. Loop thread. */
#include "common/base/random.h"
#include "common/bus/bus.h"
#include "head/links/events.h"
#include "proto/link/link.h"
#include "proto/link/silence.h"

/* How frames leave. STATUS_AGAIN: full, try later; STATUS_NOT_FOUND: no such connection any more.
 */
struct head_io {
    void *ctx;
    enum status (*send)(void *ctx, struct bus_peer to, struct str frame);
    /* A peer has seen a term that is not below ours and not from us. It was refused, and comes
     * again: whose the lease is has to be looked at first. NULL: no lease, the next term is ours.
     */
    void (*on_foreign_term)(void *ctx, uint64_t term);
};

struct peer {
    struct bus_peer addr;
    bool open; /* it has a session; else it is waited for until it is lost */
    bool suspect;
    bool is_overdue; /* at the last tick it had been silent for too long (proto/link/silence.h) */
    bool key_gone;   /* it is no longer authorized: its instance may come back with another one */
    bool blocked;    /* no credit: nothing is tried before a Credit came */
    enum peer_role role;
    uint64_t instance;
    uint64_t told_term; /* the highest term we told it: its term_seen may be ours */
    char key[41], node[65], version[33];
    struct link link;
    uint64_t opened_ns, heard_ns;
    uint64_t sent_ns;     /* anything: a heartbeat is owed only to who was told nothing */
    uint64_t credit_owed; /* consumed bytes that could not be returned yet */
    void *owner;
    struct peer *next_in_bucket;
    uint32_t index; /* in peers.all */
};

struct peers_config {
    uint32_t max_peers;
    bool insecure; /* the Hello's role is believed */
    uint64_t window_bytes;
    uint32_t heartbeat_ms, suspect_ms, lost_ms;
    uint64_t head_instance;
};

struct peers {
    struct peers_config config;
    struct head_io io;
    struct events *events;
    const struct authorized *authorized; /* borrowed; NULL: who is connected may speak */
    struct rng *rng;                     /* session numbers */
    uint64_t now_ns;                     /* of the last frame or tick */
    uint64_t term;         /* the head's, for Welcome; kept up to date by the cluster */
    struct peer **all;     /* [n] */
    struct peer **buckets; /* by address, [n_buckets], a power of two */
    uint32_t n, n_buckets;
    struct arena decode, encode;
    struct strbuf frame;
    char refused_text[160]; /* last told; a refused peer comes back twice a second */
    uint64_t refused_ns;
    uint64_t n_unknown_session, n_malformed, n_refused, n_broken; /* for metrics */
};

enum peers_event {
    PEERS_NOTHING, /* dropped and counted, or handled here */
    PEERS_HELLO,   /* answer with peers_open or peers_refuse */
    PEERS_MSG,
    PEERS_BROKEN, /* *peer lost its session to a wrong sequence number or a frame not allowed */
};

struct peers_input {
    struct bus_peer from;
    enum peer_role role; /* authenticated; ROLE_NONE with --insecure */
    const char *key;
    struct str frame;
};

void peers_init(struct peers *p, const struct peers_config *c, const struct head_io *io,
                struct events *events, struct rng *rng);
void peers_fini(struct peers *p);
/* *msg is valid until the next call. */
enum peers_event peers_receive(struct peers *p, const struct peers_input *in, uint64_t now_ns,
                               struct peer **peer, struct msg *msg);
/* Opens a session for a Hello and sends Welcome. *known: the instance had a peer already, whose old
 * session is gone; NULL is returned when it was refused (table full, another's instance). */
struct peer *peers_open(struct peers *p, const struct peers_input *in, const struct msg_hello *h,
                        uint64_t now_ns, bool *known);
void peers_refuse(struct peers *p, struct bus_peer to, enum status status, const char *text,
                  uint64_t now_ns);
struct peer *peers_find_instance(const struct peers *p, enum peer_role role, uint64_t instance);
/* Ends the session; the identity stays until it is lost or says Hello again. */
void peers_close_session(struct peers *p, struct peer *peer);
/* The keys in authorized have changed: sessions of keys that it has no longer are closed. */
void peers_revoke(struct peers *p, uint64_t now_ns);
/* Forgets the peer; the pointer is dead. */
void peers_remove(struct peers *p, struct peer *peer);

/* STATUS_AGAIN: no credit or a full socket, nothing was sent; STATUS_CLOSED: no session;
 * STATUS_UNSUPPORTED: the type came with a later minor than the peer's. */
MUST_USE enum status peers_send(struct peers *p, struct peer *to, const struct msg *m);
/* The same for a frame encoded once for many (peers_encode): session and seq are written over. */
MUST_USE enum status peers_encode(struct peers *p, const struct msg *m, struct strbuf *out);
MUST_USE enum status peers_send_encoded(struct peers *p, struct peer *to, enum msg_type type,
                                        struct strbuf *frame);

/* Heartbeats, suspicion and loss. on_lost removes the peer (peers_remove) or must not return. */
struct peers_tick_fns {
    void *ctx;
    void (*on_lost)(void *ctx, struct peer *peer);
    /* Fills in the parts of a heartbeat beside the time; NULL: nothing. */
    void (*fill_heartbeat)(void *ctx, const struct peer *peer, struct msg_heartbeat *m);
};
void peers_tick(struct peers *p, uint64_t now_ns, const struct peers_tick_fns *fns);
/* The head itself stood still for ns: nobody is blamed for that time. */
void peers_forgive(struct peers *p, uint64_t ns);
