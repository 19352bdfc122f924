#pragma once
/* Gives up replicas of fewer ranks than TP so that they become whole again
 * (docs/develop/recovery.md, "Fewer ranks than TP"). With --elastic-tp alone. Loop thread. */
#include "head/cluster/registry.h"

/* Dissolves a replica that can be whole again. */
void elastic_grow_tick(struct cluster *c);
