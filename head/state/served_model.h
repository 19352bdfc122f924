#pragma once
/* Describes the model that the cluster serves: its name, and the shortest limit of the replicas.
 * The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Updates the model. Call it when the list of live engine slots has changed and every replica in
 * it is whole. */
void served_model_update(struct head_core *h);
/* Returns the model, or zeros and "" before any worker has reported its model. */
struct served_model served_model_now(const struct head_core *h);
