#pragma once
/* Keeps a gateway's requests with data to deliver, the oldest first. The outbox is an array, so
 * that a walk over it can prefetch. The code runs on the loop thread. */
#include "head/state/head_core.h"

void outbox_add(struct head_core *h, struct request *r);
/* Removes `r`, which need not be in the outbox. */
void outbox_remove(struct head_core *h, struct request *r);
void outbox_clear(struct gateway_peer *g);
