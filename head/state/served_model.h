#pragma once
/* The model that the cluster serves: its name, and the shortest limit of the replicas. Loop
 * thread. */
#include "head/state/head_core.h"

/* Call when the list of live engine slots has changed and every replica in it is whole. */
void served_model_update(struct head_core *h);
/* Returns zeros and "" before any worker has reported its model. */
struct served_model served_model_now(const struct head_core *h);
