#pragma once
/* Checks whether KV blocks can be copied from one replica to another, rank by rank. */
#include "head/cluster/registry.h"

/* Names the permanent obstacles to such a copy. TRANSFER_WAY = none. */
enum transfer_way { TRANSFER_WAY, TRANSFER_NO_ADDRESS, TRANSFER_OTHER_CACHE };
enum transfer_way transfer_way(const struct replica *from, const struct replica *to);
