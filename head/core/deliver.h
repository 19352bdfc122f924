#pragma once
/* Sends a gateway the refusals and tokens of its requests. The code runs on the loop thread. */
#include "head/state/head_core.h"

void deliver(struct head_core *h, struct gateway_peer *g);
