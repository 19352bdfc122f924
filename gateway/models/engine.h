#pragma once
/* Routes messages between a model and its head, above the socket (link.h). Messages from the head
 * are passed to the model's serving or to its adapters. Messages of serving and the adapters are
 * passed to the gateway's end of the protocol (head_link/). Only the loop thread calls these
 * functions. */
#include "gateway/models/served.h"

/* Returns the functions with which serving sends messages to the head. They answer STATUS_AGAIN
 * before the link has started. */
struct engine_ops gateway_engine_ops(struct engine_client *c);
enum status gateway_engine_order(void *engine, const struct msg_adapter_order *m);
/* Returns the handlers of the head's messages. `m` is borrowed and receives every message. */
struct engine_events gateway_engine_events(struct served_model *m);
