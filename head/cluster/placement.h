#pragma once
/* The choice of the free workers that form a replica. Loop thread. */
#include "head/cluster/registry.h"

/* Forms every replica that can be formed. */
void placement_run(struct cluster *c);
