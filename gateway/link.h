#pragma once
/* The link to the head: the socket, and the client's end of its protocol (head_link/). Where each
 * message goes: engine.h. Loop thread only. */
#include "common/bus/bus.h"
#include "gateway/head_link/engine_client.h"
#include "gateway/routes/state.h"

struct gateway_link {
    struct api_server *api; /* borrowed: who hears of it */
    char node[256];         /* this host's name, for the head */
    struct bus *bus;
    bool reconnect_wanted; /* not inside the bus's own callback */
    struct engine_client engine;
    bool has_engine;
};

/* l: with api and node; v is borrowed. */
MUST_USE enum status gateway_link_start(struct gateway_link *l, const struct vocabulary *v,
                                        struct error *err);
void gateway_link_turn_end(struct gateway_link *l);
/* The last word to the head, and time for it to arrive. */
void gateway_link_goodbye(struct gateway_link *l);
void gateway_link_close(struct gateway_link *l);
