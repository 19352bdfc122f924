#pragma once
/* Chooses requests that move to another replica while they run, with or without their KV blocks.
 * The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Begins moves of requests out of the engine slots that should lose requests. */
void transfer_policy_look(struct head_core *h);
