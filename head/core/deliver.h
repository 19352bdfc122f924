#pragma once
/* Sends a gateway the refusals and tokens of its requests. Loop thread. */
#include "head/state/head_core.h"

void deliver(struct head_core *h, struct gateway_peer *g);
