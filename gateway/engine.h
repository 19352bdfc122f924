#pragma once
/* Routes messages between the gateway and the head, above the socket (link.h). Messages from the
 * head are passed to serving or to the adapters. Messages of serving and the adapters are passed
 * to the gateway's end of the protocol (head_link/). Only the loop thread calls these functions. */
#include "gateway/head_link/engine_client.h"
#include "gateway/routes/state.h"

/* Returns the functions with which serving sends messages to the head. Call this function before
 * the link starts. */
struct engine_ops gateway_engine_ops(struct engine_client *c);
enum status gateway_engine_order(void *engine, const struct msg_adapter_order *m);
/* Returns the handlers of the head's messages. `a` is borrowed and receives every message. */
struct engine_events gateway_engine_events(struct api_server *a);
