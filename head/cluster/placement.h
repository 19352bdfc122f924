#pragma once
/* The choice of the free workers that form a group. Loop thread. */
#include "head/cluster/registry.h"

/* Forms every group that can be formed. */
void placement_run(struct cluster *c);
