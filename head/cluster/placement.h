#pragma once
/* Chooses the free workers that form a replica. Loop thread. */
#include "head/cluster/registry.h"

/* Forms every replica that can be formed now. */
void placement_run(struct cluster *c);
