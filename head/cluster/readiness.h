#pragma once
/* Decides the state that each worker reports on /readyz. A tool that replaces workers one by one
 * (a StatefulSet) continues when the last one is ready. So the rank that completes a replica is
 * not ready before the replica serves. Otherwise the tool would take down the next replica too
 * early. A rank whose replica cannot form from the connected workers is ready as a spare.
 * Otherwise the tool would never replace the rank's partner. The code runs on the loop thread. */
#include "head/cluster/registry.h"

bool readiness_serves(const struct worker *w);
void readiness_tick(struct cluster *c); /* sets is_spare of every worker */
