#pragma once
/* Fills in this rank's Hello and heartbeats, as callbacks of head_link_handlers. Their `ctx` is
 * the struct worker_process. */
#include "proto/messages.h"

bool worker_fill_hello(void *ctx, struct msg_hello *h);
void worker_fill_heartbeat(void *ctx, struct msg_heartbeat *h);
