#pragma once
/* What a gateway is sent of its requests: refusals, and what its outbox has. Loop thread. */
#include "head/state/head_core.h"

void deliver(struct head_core *h, struct gateway *g);
