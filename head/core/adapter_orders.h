#pragma once
/* Handles orders to load and unload LoRA adapters, from gateways and operators, and sends
 * gateways the adapter list. The code runs on the loop thread. */
#include "proto/messages.h"

struct gateway_peer;
struct head_core;

/* These two functions load and unload an adapter, with the errors of cluster/adapters.h. `by`
 * names the caller in the event log. */
MUST_USE enum status head_core_load_adapter(struct head_core *h, struct str name, struct str path,
                                            bool in_place, const char *by, uint64_t now_ns,
                                            struct error *err);
MUST_USE enum status head_core_unload_adapter(struct head_core *h, struct str name, const char *by,
                                              uint64_t now_ns, struct error *err);

void adapter_orders_take(struct head_core *h, struct gateway_peer *g,
                         const struct msg_adapter_order *m);
/* Sends the gateway the usable adapters when they have changed since they were last sent to it. */
void adapter_orders_tell(struct head_core *h, struct gateway_peer *g);
void adapter_orders_answer(struct head_core *h);
