#pragma once
/* `gateway_link` is the link to the head: the socket and the gateway's end of its protocol
 * (head_link/). engine.h decides where each message goes. Only the loop thread calls these
 * functions. */
#include "common/bus/bus.h"
#include "common/options/gateway.h"
#include "gateway/base/due.h"
#include "gateway/head_link/engine_client.h"

struct gateway_link {
    struct bus *bus;
    /* true = reconnect at the end of the turn, because the bus allows no reconnect in its own
     * callback */
    bool reconnect_wanted;
    struct due *due; /* told when `reconnect_wanted` is set, borrowed; NULL = nobody */
    struct engine_client engine;
    bool has_engine;
};

/* `link_options` holds the arguments of a link; all pointers are borrowed for its life. */
struct link_options {
    struct loop *loop;
    const struct gateway_config *config; /* address of the head, and keys */
    const char *node;                    /* name of this host, sent to the head */
    const char *model;                   /* name of the served model, for logs */
    const struct vocabulary *vocabulary;
    struct engine_events events; /* receivers of the head's messages */
};
/* Starts the link to the head. `l` must be zeroed. */
MUST_USE enum status gateway_link_start(struct gateway_link *l, const struct link_options *o,
                                        struct error *err);
void gateway_link_turn_end(struct gateway_link *l);
/* Sends the goodbye message, unless the link was never started. `gateway_link_close` waits until
 * the message has been sent. */
void gateway_link_goodbye(struct gateway_link *l, const char *why);
void gateway_link_close(struct gateway_link *l);
