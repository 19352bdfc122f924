#pragma once
/* The link to the head: the socket, the client's end of its protocol (head_link/), and where each
 * message goes. Loop thread only. */
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

/* Before the link is started: what serving and adapters send with. */
struct engine_ops gateway_link_ops(struct gateway_link *l);
enum status gateway_link_order(void *engine, const struct msg_adapter_order *m);
/* l: with api and node; v is borrowed. */
MUST_USE enum status gateway_link_start(struct gateway_link *l, const struct vocabulary *v,
                                        struct error *err);
void gateway_link_turn_end(struct gateway_link *l);
/* The last word to the head, and time for it to arrive. */
void gateway_link_goodbye(struct gateway_link *l);
void gateway_link_close(struct gateway_link *l);
