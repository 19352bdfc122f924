#pragma once
/* A gateway's requests with data to deliver, oldest first. It is an array, so that a walk can
 * prefetch. Loop thread. */
#include "head/state/head_core.h"

void outbox_add(struct head_core *h, struct request *r);
void outbox_remove(struct head_core *h, struct request *r); /* `r` need not be in it */
void outbox_clear(struct gateway_peer *g);
