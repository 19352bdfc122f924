#pragma once
/* Sends a message of one peer to the head. */
#include "bench/large_cluster/peers.h"

void scale_send(struct scale *s, uint32_t i_peer, const struct msg *m);
