#pragma once
/* Whether KV blocks can be copied from one replica to another, rank by rank. */
#include "head/cluster/registry.h"

/* From one replica's KV cache to another's, rank by rank: what stands in the way of it for good. */
enum transfer_way { TRANSFER_WAY, TRANSFER_NO_ADDRESS, TRANSFER_OTHER_CACHE };
enum transfer_way transfer_way(const struct replica *from, const struct replica *to);
