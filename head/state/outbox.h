#pragma once
/* A gateway's requests that have something to deliver, oldest first: an array, so that who walks it
 * can ask for what comes. Loop thread. */
#include "head/state/head_core.h"

void outbox_add(struct head_core *h, struct request *r);
void outbox_remove(struct head_core *h, struct request *r); /* not in it: fine */
void outbox_clear(struct gateway_peer *g);
