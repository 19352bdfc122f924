#pragma once
/* Adopts replicas of the previous head; adoption.c has the rule. The code runs on the loop
 * thread. */
#include "head/cluster/registry.h"

void adoption_tick(struct cluster *c);
