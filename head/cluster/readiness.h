#pragma once
/* Workers are told of their own place, for /readyz: whoever replaces workers one by one (a
 * StatefulSet) goes on to the next when the last one is ready. So the rank that makes a replica
 * whole is not ready before the replica serves, or the next replica would be taken before this one
 * is back; and a rank whose replica cannot be made of the workers that are here is ready as a
 * spare, or the replacement of its partner would be waited for in vain. Loop thread. */
#include "head/cluster/registry.h"

bool readiness_serves(const struct worker *w);
void readiness_tick(struct cluster *c); /* sets is_spare */
