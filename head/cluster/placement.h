#pragma once
/* Chooses the free workers that form a replica. The code runs on the loop thread. */
#include "head/cluster/registry.h"

/* Forms every replica for which there are enough free workers now. */
void placement_run(struct cluster *c);
