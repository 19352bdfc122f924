#pragma once
/* Handles gateways: how they connect and leave, their messages, and the cluster state that the
 * head sends them. The code runs on the loop thread. */
#include "head/state/head_core.h"

void gateways_on_hello(struct head_core *h, struct peer *peer, const struct msg_hello *m);
void gateways_on_msg(struct head_core *h, struct gateway_peer *g, const struct msg *m);
void gateways_on_lost(struct head_core *h, struct gateway_peer *g, bool is_goodbye);
void gateways_tick(struct head_core *h);
void gateways_flush(struct head_core *h);
void gateways_free(struct head_core *h);
