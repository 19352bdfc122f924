#pragma once
/* Adoption of the replicas of a head that ended: see adoption.c. Loop thread. */
#include "head/cluster/registry.h"

void adoption_tick(struct cluster *c);
