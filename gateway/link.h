#pragma once
/* `gateway_link` is the link to the head: the socket and the gateway's end of its protocol
 * (head_link/). engine.h decides where each message goes. Only the loop thread calls these
 * functions. */
#include "common/bus/bus.h"
#include "gateway/head_link/engine_client.h"
#include "gateway/routes/state.h"

struct gateway_link {
    struct api_server *api; /* receiver of the head's messages; borrowed */
    char node[256];         /* name of this host, sent to the head */
    struct bus *bus;
    /* true = reconnect at the end of the turn, because the bus allows no reconnect in its own
     * callback */
    bool reconnect_wanted;
    struct engine_client engine;
    bool has_engine;
};

/* Starts the link to the head. `l->api` and `l->node` must be set. `v` is borrowed. */
MUST_USE enum status gateway_link_start(struct gateway_link *l, const struct vocabulary *v,
                                        struct error *err);
void gateway_link_turn_end(struct gateway_link *l);
/* Sends the goodbye message and waits until it has been sent. */
void gateway_link_goodbye(struct gateway_link *l);
void gateway_link_close(struct gateway_link *l);
