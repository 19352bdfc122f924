#pragma once
/* Chooses the free workers that form a replica. The code runs on the loop thread. */
#include "head/cluster/registry.h"

/* Forms every replica that can be formed now. */
void placement_run(struct cluster *c);
