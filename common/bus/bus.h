#pragma once
/* Runs ZeroMQ on the loop: a ROUTER for the head, a DEALER for every other process. This module
 * moves frames; proto/link/link.h has the session logic. CURVE is always on, unless `insecure`
 * is set. The ZAP handler admits only authorized keys, runs before the bind, and gives each
 * frame the role of its peer. All calls and callbacks are on the loop's thread.
 * ZMQ_FD is edge-triggered: the socket is drained on every wake-up and after the sends of a
 * turn, with a cap per turn. Sends never block and never drop a frame silently. STATUS_AGAIN
 * means that the high-water mark is reached. STATUS_NOT_FOUND means that the peer is gone. */
#include "common/base/str.h"
#include "common/keys/authorized.h"
#include "common/keys/curve_keys.h"
#include "common/loop/loop.h"

#define BUS_ID_MAX 16u

/* `bus_peer` is a ROUTER's name for a connected peer (ZeroMQ's routing id, 5 bytes today). */
struct bus_peer {
    uint8_t n, id[BUS_ID_MAX];
};

struct bus;
struct bus_handlers {
    void *ctx;
    /* `role` and `key` are those of the authenticated sender. On a DEALER they are ROLE_HEAD and
     * the head's key, and `from` is empty. With --insecure `role` is ROLE_NONE (the Hello's role
     * is believed) and `key` is "". */
    void (*on_frame)(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame);
    /* Reports events of a DEALER's socket monitor. The events are informative: heartbeats decide
     * that a peer is lost. A failed handshake distinguishes "wrong key" from "no answer". */
    void (*on_link)(void *ctx, bool up, const char *why);
};

struct bus_options {
    /* Address, such as "tcp://0.0.0.0:7000"; port 0 = any free port. A DEALER may have several,
     * "tcp://A:1,B:2". The head is at one of these addresses, and bus_reconnect switches to the
     * next. */
    const char *endpoint;
    bool insecure; /* true = no CURVE; needs a loopback endpoint or allow_remote_insecure */
    bool allow_remote_insecure;
    struct curve_keys keys;        /* key pair of this process */
    const char *server_public_key; /* DEALER: key of the head */
    const char *server_other_key;  /* second key of the head; NULL or "" = none */
    /* DEALER: folder that these keys were read from, borrowed for the life of the bus.
     * `keys_role` is the role of our own key. The folder is read again before each new
     * connection, so that keys can be changed while the process runs. When a handshake fails,
     * the head's other key is tried. NULL = the keys are never read again. */
    const char *keys_dir;
    enum peer_role keys_role;
    /* ROUTER: keys that may connect, borrowed for the life of the bus */
    const struct authorized *authorized;
    uint32_t max_frame_bytes; /* largest frame in bytes (ZMQ_MAXMSGSIZE) */
    uint32_t hwm;             /* high-water mark, in messages per link */
};

MUST_USE enum status bus_bind(struct loop *l, const struct bus_options *o,
                              const struct bus_handlers *h, struct bus **out, struct error *err);
MUST_USE enum status bus_connect(struct loop *l, const struct bus_options *o,
                                 const struct bus_handlers *h, struct bus **out, struct error *err);
/* Returns the bound or connected address, with the real port. */
const char *bus_endpoint(const struct bus *b);
MUST_USE enum status bus_send(struct bus *b, struct bus_peer to, struct str frame);
uint32_t bus_n_addresses(const struct bus *b);
/* DEALER: drops the connection and all queued frames, then connects again with a new routing id.
 * With several addresses the bus switches to the next address. */
MUST_USE enum status bus_reconnect(struct bus *b, struct error *err);
/* ROUTER: exchanges the contents of `mine` and `next`. `mine` is bus_options.authorized, which
 * the bus uses. Later handshakes use the new list. Existing connections stay. b may be NULL when
 * nothing is bound yet. */
void bus_swap_authorized(struct bus *b, struct authorized *mine, struct authorized *next);
/* ROUTER: ends all connections and listens at the same address again, with another key pair.
 * Never call it from on_frame. Returns STATUS_EXISTS while the old socket still holds the port,
 * which is normal for a moment: call it again soon. Until it succeeds, no frame is sent or
 * received. */
MUST_USE enum status bus_rebind(struct bus *b, const struct curve_keys *keys, struct error *err);
/* DEALER: sets how many ms bus_close waits for queued frames to leave. The default is 0. */
void bus_linger(struct bus *b, int ms);
void bus_close(struct bus *b); /* b may be NULL */
