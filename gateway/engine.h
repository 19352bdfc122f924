#pragma once
/* The gateway's conversation with the head, above the link's socket (link.h): each message of the
 * head goes to serving or to the adapters, and each of theirs to the client's end of the protocol.
 * Loop thread only. */
#include "gateway/head_link/engine_client.h"
#include "gateway/routes/state.h"

/* Before the link is started: what serving and adapters send with. */
struct engine_ops gateway_engine_ops(struct engine_client *c);
enum status gateway_engine_order(void *engine, const struct msg_adapter_order *m);
/* a is borrowed: who hears of the head. */
struct engine_events gateway_engine_events(struct api_server *a);
