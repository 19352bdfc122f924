#pragma once
/* Which free workers form which group. Loop thread. */
#include "head/cluster/registry.h"

/* Forms every group that can be formed. */
void placement_run(struct cluster *c);
