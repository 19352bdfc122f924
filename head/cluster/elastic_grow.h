#pragma once
/* Dissolves replicas of fewer ranks than TP so that they become whole again
 * (docs/develop/recovery.md, "Fewer ranks than TP"). It is used only with --elastic-tp, and runs
 * on the loop thread. */
#include "head/cluster/registry.h"

/* Dissolves a replica with fewer ranks than TP when a whole one can replace it. Dissolves other
 * replicas too if their workers are needed. */
void elastic_grow_tick(struct cluster *c);
