#pragma once
/* Hello and heartbeats of this rank, as head_link_handlers has them. ctx is the struct
 * worker_process. */
#include "proto/messages.h"

bool worker_fill_hello(void *ctx, struct msg_hello *h);
void worker_fill_heartbeat(void *ctx, struct msg_heartbeat *h);
