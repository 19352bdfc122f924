#pragma once
/* The choice of requests that move to another replica while they run, with or without their KV
 * blocks. Loop thread. */
#include "head/state/head_core.h"

/* Looks at the engine slots that want to be rid of requests, and begins what is to begin. */
void transfer_policy_look(struct head_core *h);
