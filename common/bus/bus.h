#pragma once
/* ZeroMQ on the loop: a ROUTER for the head, a DEALER for everybody else. Frames in, frames out; no
 * session logic (proto/link/link.h has that). CURVE always, unless insecure; the ZAP handler admits
 * only authorized keys, runs before bind, and gives each frame's peer its role. All calls and
 * callbacks on the loop's thread. ZMQ_FD is edge-triggered: it is drained on every wake-up and
 * after the sends of a turn, capped per turn and re-armed. Sends never block and never drop
 * silently: STATUS_AGAIN = the high-water mark, STATUS_NOT_FOUND = no such peer any more. */
#include "common/base/str.h"
#include "common/keys/authorized.h"
#include "common/keys/curve_keys.h"
#include "common/loop/loop.h"

#define BUS_ID_MAX 16u

/* A ROUTER's name for a connected peer (ZeroMQ's routing id, 5 bytes today). */
struct bus_peer {
    uint8_t n, id[BUS_ID_MAX];
};

struct bus;
struct bus_handlers {
    void *ctx;
    /* role and key of the authenticated sender; on a DEALER: ROLE_HEAD and an empty peer. With
     * --insecure role is ROLE_NONE (the Hello's role is believed) and key is "". */
    void (*on_frame)(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame);
    /* DEALER only, from the socket monitor: informative (peer loss is decided by heartbeats), but a
     * failed handshake tells "wrong key" from "nobody there". */
    void (*on_link)(void *ctx, bool up, const char *why);
};

struct bus_options {
    /* "tcp://0.0.0.0:7000"; port 0 = any free one. DEALER: may be several, "tcp://A:1,B:2": the
     * head is at one of them, and bus_reconnect goes to the next. */
    const char *endpoint;
    bool insecure; /* no CURVE: refused for a non-loopback endpoint unless the next says so */
    bool allow_remote_insecure;
    struct curve_keys keys;        /* ours */
    const char *server_public_key; /* DEALER: the head's */
    const char *server_other_key;  /* its other one, NULL or "": there is none */
    /* DEALER: the folder that both came from, borrowed for the bus's life, and whose key ours is.
     * It is read again before each new connection, so that keys can be changed while we run; of two
     * keys of the head the other one is tried when a handshake fails. NULL: they stay. */
    const char *keys_dir;
    enum peer_role keys_role;
    const struct authorized *authorized; /* ROUTER: borrowed for the bus's life */
    uint32_t max_frame_bytes;            /* ZMQ_MAXMSGSIZE */
    uint32_t hwm;                        /* messages per link */
};

MUST_USE enum status bus_bind(struct loop *l, const struct bus_options *o,
                              const struct bus_handlers *h, struct bus **out, struct error *err);
MUST_USE enum status bus_connect(struct loop *l, const struct bus_options *o,
                                 const struct bus_handlers *h, struct bus **out, struct error *err);
const char *bus_endpoint(const struct bus *b); /* bound or connected address, with the real port */
MUST_USE enum status bus_send(struct bus *b, struct bus_peer to, struct str frame);
uint32_t bus_n_addresses(const struct bus *b);
/* DEALER: drop the connection and everything queued, then connect again (a fresh routing id), to
 * the next address where there are several. */
MUST_USE enum status bus_reconnect(struct bus *b, struct error *err);
/* ROUTER: exchanges what the two hold, mine being bus_options.authorized: next handshakes go by it,
 * connections that there are stay. b may be NULL: not bound yet. */
void bus_swap_authorized(struct bus *b, struct authorized *mine, struct authorized *next);
/* ROUTER: ends all connections and listens at the same address again, with another key of its own.
 * Not from on_frame. STATUS_EXISTS: the port is not free yet, as it is a moment after every call:
 * once more, soon; until then nothing is sent or comes. */
MUST_USE enum status bus_rebind(struct bus *b, const struct curve_keys *keys, struct error *err);
/* DEALER: bus_close gives what is queued so long to leave; 0 without this call. */
void bus_linger(struct bus *b, int ms);
void bus_close(struct bus *b); /* NULL is fine */
