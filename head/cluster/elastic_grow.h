#pragma once
/* Dissolves replicas of fewer ranks than TP so that they become whole again
 * (docs/develop/recovery.md, "Fewer ranks than TP"). It is used only with --elastic-tp, and runs
 * on the loop thread. */
#include "head/cluster/registry.h"

/* Dissolves a replica that can be whole again, with others if needed. */
void elastic_grow_tick(struct cluster *c);
